"""Agent frameworks behind one small face, so that one contract fits all of them.

A `Framework` says what it needs (`requires`), which wires and modes it has, how its adapter is made, and runs a `Task`
with the framework's real agent: the model is a scripted provider on loopback, the only tool is `read(path)`. What came
to the provider is looked at by `contract`; what the framework keeps of the conversation is in `Ran.history`.

One file for each framework. It imports the framework inside of its methods, so that all of them can be listed anywhere;
each exports `FRAMEWORK`. Those that are light run in the main suite (tests/adapters), the others each in an environment
of their own: `python -m tests_slow.frameworks [NAME…]`.
"""
