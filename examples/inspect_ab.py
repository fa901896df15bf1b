"""Inspect: any task with and without Ibidem on the same samples, and the difference. Needs: pip install inspect_ai

    python examples/inspect_ab.py TASK --model openai/gpt-4.1 --limit 50

TASK is what `inspect eval` takes: a file, `file.py@task` or a registered name. Every sample is run in both arms, within
one evaluation, so that both meet the same provider at the same time; with `--epochs 3`, three times in each. What
differs is told per sample, and its interval is that of samples drawn at random: two runs of one sample have that sample
in common.
"""

import argparse
from collections import defaultdict
from statistics import fmean

import inspect_ai
from inspect_ai.hooks import hooks
from inspect_ai.scorer import value_to_float

from ibidem.adapters.inspect_ai import IbidemHooks
from ibidem.billing.prices import Prices
from ibidem.trial.estimates import Contrast, estimate
from ibidem.trial.outcomes import Stratum

FORMATS = {"anthropic": "anthropic", "openai": "openai-chat", "google": "gemini"}
"""By provider: of whose models the prices are known."""
MILLION = 1_000_000


def rewritten(epoch):
    """Odd epochs go as they are, even ones rewritten."""
    return epoch % 2 == 0


def spent(sample, model):
    """Tokens of one run, and dollars where prices are known; what a judge of another model costs is not counted."""
    tokens, dollars, prices = 0, 0.0, Prices()
    provider, _, name = model.partition("/")
    for event in sample.events:
        usage = event.output.usage if event.event == "model" and event.model == model and event.output else None
        if usage is None:
            continue
        read, written = usage.input_tokens_cache_read or 0, usage.input_tokens_cache_write or 0
        size = usage.input_tokens + read + written
        tokens += size
        if usage.total_cost is not None:
            dollars += usage.total_cost
        elif provider in FORMATS:
            rates = prices.of(name, FORMATS[provider]).rates(size)
            dollars += usage.input_tokens * rates.fresh + read * rates.read + written * rates.write
            dollars += usage.output_tokens * rates.output
    return {"input tokens": tokens, **({"dollars": dollars} if dollars else {})}


def figures(sample, model):
    """Of one run, by name: every score that is a number, or a word that Inspect reads as one."""
    told, number = spent(sample, model), value_to_float()
    for name, score in (sample.scores or {}).items():
        values = score.value if isinstance(score.value, dict) else {"": score.value}
        for part, value in values.items():
            if isinstance(value, str | int | float | bool):
                told[f"score {name}{part and '.'}{part}"] = number(value)
    return told


def contrasts(samples, model):
    """By figure: what each sample says of it that has a run without an error in both arms; and how many have none."""
    runs = defaultdict(lambda: {False: [], True: []})
    for sample in samples:
        arms = runs[sample.id]
        if sample.error is None:
            arms[rewritten(sample.epoch)].append(figures(sample, model))
    found = defaultdict(list)
    for sample, arms in runs.items():
        named = {name for told in arms[False] for name in told} & {name for told in arms[True] for name in told}
        for name in sorted(named, reverse=True):
            plain, ours = (fmean(told[name] for told in arms[arm] if name in told) for arm in (False, True))
            found[name].append(Contrast(str(sample), Stratum.ANY, 1.0, plain, ours, ours - plain))
    return found, sum(not (arms[False] and arms[True]) for arms in runs.values())


def line(name, told):
    digits, unit = (0, "") if name == "input tokens" else (4, "$") if name == "dollars" else (3, "")
    levels = f"{unit}{told.original:,.{digits}f} → {unit}{told.rewritten:,.{digits}f}"
    if told.low is None:
        return f"{name:24} {levels:22} {told.value:+,.{digits}f} (one sample: no interval)"
    return f"{name:24} {levels:22} {told.value:+,.{digits}f} (95 % {told.low:+,.{digits}f}…{told.high:+,.{digits}f})"


def report(log, epochs):
    found, dropped = contrasts(log.samples or [], log.eval.model)
    count = max(map(len, found.values()), default=0)
    print(f"{log.eval.task}, {log.eval.model}: {count} samples, {epochs} of each per arm, per sample as is → rewritten")
    for name, each in found.items():
        score = name.startswith("score ")
        told = estimate(each, weighted=False, share=score and all(0 <= one.original <= 1 for one in each))
        print(line(name, told))
        if score and told.low is not None:
            print(f"{'':24} a drop of more than {max(0.0, -told.low):.3f} is excluded, a smaller one is not")
    if dropped:
        why = next((" ".join(each.error.message.split())[:200] for each in log.samples if each.error), "")
        print(f"{dropped} samples left out: an arm had nothing but errors. The first: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--model", required=True)
    parser.add_argument("--limit", type=int, help="samples; all if not given")
    parser.add_argument("--epochs", type=int, default=1, help="runs of each sample in each arm")
    parser.add_argument("--profile", default="lossless")
    parser.add_argument("--log-dir", help="where Inspect writes its log")
    asked = parser.parse_args()

    @hooks(name="ibidem_ab", description="Nothing is said twice, in every second epoch.")
    class EveryOther(IbidemHooks):
        profile = asked.profile

        def rewrites(self, data, sample):
            judged = data.model_name.rpartition("/")[2] == asked.model.rpartition("/")[2]  # a judge reads all of it
            return judged and sample is not None and rewritten(sample.epoch)

    options = {"limit": asked.limit, "epochs": 2 * asked.epochs, "log_dir": asked.log_dir, "fail_on_error": False}
    (log,) = inspect_ai.eval(asked.task, model=asked.model, display="none", **options)
    if log.status != "success":
        raise SystemExit(f"{asked.task}: the evaluation ended with {log.status}: {log.error and log.error.message}")
    report(log, asked.epochs)


if __name__ == "__main__":
    main()
