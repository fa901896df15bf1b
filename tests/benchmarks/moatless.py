"""Trees of moatless that were made up."""

from __future__ import annotations

from typing import Any

from ..recordings.examples import Example, lines

Json = dict[str, Any]


def node(key: Any, parent: Any, **more: Any) -> Json:
    return {"node_id": key, "parent_id": parent, "message": None, "action": None, "observation": None, **more}


def root(text: str = "<task>The door squeaks.</task>", **more: Any) -> Json:
    return node(0, None, message=text, **more)


def step(key: int, parent: int, seen: str | None = "found it", **more: Any) -> Json:
    action = {"scratch_pad": f"Step {key}.", "query": "door", "action_args_class": "moatless.actions.find.FindDoorArgs"}
    observation = None if seen is None else {"message": seen, "summary": None}
    return node(key, parent, action=action, observation=observation, **more)


def counted(prompt: int, read: int, **more: Any) -> Json:
    return {"model": "hinge-1", "usage": {"prompt_tokens": prompt, "cache_read_tokens": read}, **more}


def tree(*nodes: Any, **more: Any) -> Json:
    return {"metadata": {"instance_id": "house__door-1"}, "nodes": list(nodes), **more}


def nested(key: int, *children: Any, **more: Any) -> Json:
    return {"node_id": key, "children": list(children), **more}


DOUBLE = {
    "assistant_message": "Both hinges.",
    "action_steps": [
        {
            "action": {"name": "Oil", "hinge": "top"},
            "observation": {"message": "quiet"},
            "completion": counted(50, 0, start_time=1_700_000_000_000.0, end_time=1_700_000_002_000.0),
        },
        {"action": {"name": "Oil", "hinge": "bottom"}, "observation": {"message": None}},
    ],
}

EXAMPLES = [
    Example(
        name="one way, without counts or times",
        ids=["house__door-1"],
        titles=["The door squeaks."],
        data=lines(tree(root(), step(1, 0), step(2, 1, "still squeaks 🚪"), step(3, 2, None))),
        agent="moatless",
        format="openai-chat",
        lengths=[[[1, 3, 5]]],
        models=[[]],
        projects=["house__door-1"],
        inputs=[[None] * 3],
        times=[[None] * 3],
    ),
    Example(
        name="the search goes back: every leaf is a segment",
        data=lines(
            tree(
                root(),
                step(1, 0, completions={"build_action": counted(100, 0), "value_function": counted(9, 0)}),
                step(2, 1, completions={"build_action": counted(120, 90)}, timestamp="2024-11-17T10:00:00+00:00"),
                step(3, 1, completion=counted(40, 90)),
                node(4, 3, message="Try the other side."),
                step(5, 4),
                node(6, 0),
                node(7, 6, message="Never asked."),
            )
        ),
        agent="moatless",
        format="openai-chat",
        lengths=[[[1, 3], [3, 6]]],
        causes=[["start", "rewind"]],
        models=[["hinge-1"]],
        inputs=[[100, 120, 130, None]],
        times=[[None, 1_731_837_600.0, None, None]],
    ),
    Example(
        name="a tree of nodes in each other, with several steps in one",
        data=lines(
            {
                "root": nested(
                    0,
                    nested(1, nested(3, assistant_message="Done."), **DOUBLE),
                    nested(2, action={"name": "Open"}, output="creak"),
                    user_message="The door squeaks.",
                )
            }
        ),
        agent="moatless",
        format="openai-chat",
        lengths=[[[1, 4], [1]]],
        causes=[["start", "rewind"]],
        models=[["hinge-1"]],
        projects=[""],
        inputs=[[50, None, None]],
        times=[[1_700_000_000.0, None, None]],
        invalid=True,  # an empty observation
    ),
    Example(
        name="the attempt that gave the answer is the one that is counted",
        data=lines(
            tree(
                root(),
                step(
                    1,
                    0,
                    completion={
                        "model": "hinge-2",
                        "attempts": [
                            {"usage": {"prompt_tokens": 10}, "success": False},
                            {"usage": {"prompt_tokens": 20, "cache_write_tokens": 5}, "success": True},
                        ],
                    },
                ),
            )
        ),
        agent="moatless",
        format="openai-chat",
        lengths=[[[1]]],
        models=[["hinge-2"]],
        inputs=[[20]],
    ),
    Example(
        name="broken nodes in the middle, and a parent that is lost",
        data=lines(
            tree(
                root(),
                step(1, 0),
                None,
                step(3, 2),
                node(4, 3, action={"no": "name"}),
                step(5, 4),
                node([], 5),
                step(5, 4, "told twice"),
                metadata="lost",
                instance_id="house__door-2",
            )
        ),
        agent="moatless",
        format="openai-chat",
        lengths=[[[1, 3, 5]]],
        projects=["house__door-2"],
        skipped=[1, 1, 1],
    ),
    Example(
        name="a call without a result that is followed by others",
        data=lines(tree(root(), step(1, 0, None), step(2, 1))),
        agent="moatless",
        format="openai-chat",
        lengths=[[[1, 2]]],
        invalid=True,
    ),
    Example(
        name="trees one per line",
        ids=["house__door-1", "b"],
        titles=["The door squeaks.", "Elsewhere."],
        data=lines(tree(root(), step(1, 0)), tree(root("Elsewhere."), step(1, 0), metadata={"instance_id": "b"})),
        agent="moatless",
        format="openai-chat",
        lengths=[[[1]], [[1]]],
        projects=["house__door-1", "b"],
    ),
]
