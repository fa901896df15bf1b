"""Run any Inspect task with and without Ibidem on the same samples. Needs: pip install inspect_ai

    python examples/inspect_ab.py TASK --model openai/gpt-4.1 --limit 50

TASK is an argument of `inspect eval`: a file, `file.py@task` or a registered name. Every sample runs in both variants,
in one evaluation, so that both use the same provider at the same time; with `--epochs 3`, three times in each. The
difference is computed per sample. Its interval assumes that samples are drawn at random and pairs the runs of a sample.
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
"""Wire format by provider, for providers with known prices."""
MILLION = 1_000_000


def is_rewritten(epoch):
    """Even epochs are rewritten, odd ones are not."""
    return epoch % 2 == 0


def run_cost(sample, model):
    """Return tokens of one run, and dollars if prices are known, without the cost of judge models."""
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


def run_numbers(sample, model):
    """Return cost and scores of one run by name: numbers, and words that Inspect converts to numbers."""
    numbers, to_number = run_cost(sample, model), value_to_float()
    for name, score in (sample.scores or {}).items():
        values = score.value if isinstance(score.value, dict) else {"": score.value}
        for part, value in values.items():
            if isinstance(value, str | int | float | bool):
                numbers[f"score {name}{part and '.'}{part}"] = to_number(value)
    return numbers


def compare_samples(samples, model):
    """Return the differences per sample, by name, and the number of samples without a success in both variants."""
    runs = defaultdict(lambda: {False: [], True: []})
    for sample in samples:
        variants = runs[sample.id]
        if sample.error is None:
            variants[is_rewritten(sample.epoch)].append(run_numbers(sample, model))
    contrasts = defaultdict(list)
    for sample, variants in runs.items():
        original_names, rewritten_names = ({name for run in variants[side] for name in run} for side in (False, True))
        for name in sorted(original_names & rewritten_names, reverse=True):
            plain, ours = (fmean(run[name] for run in variants[side] if name in run) for side in (False, True))
            contrasts[name].append(Contrast(str(sample), Stratum.ANY, 1.0, plain, ours, ours - plain))
    return contrasts, sum(not (variants[False] and variants[True]) for variants in runs.values())


def format_row(name, result):
    digits, unit = (0, "") if name == "input tokens" else (4, "$") if name == "dollars" else (3, "")
    levels = f"{unit}{result.original:,.{digits}f} → {unit}{result.rewritten:,.{digits}f}"
    if result.low is None:
        return f"{name:24} {levels:22} {result.value:+,.{digits}f} (one sample: no interval)"
    interval = f"(95 % {result.low:+,.{digits}f}…{result.high:+,.{digits}f})"
    return f"{name:24} {levels:22} {result.value:+,.{digits}f} {interval}"


def report(log, epochs):
    contrasts, dropped = compare_samples(log.samples or [], log.eval.model)
    count = max(map(len, contrasts.values()), default=0)
    print(f"{log.eval.task}, {log.eval.model}: {count} samples, {epochs} of each per variant; original → rewritten")
    for name, samples in contrasts.items():
        score = name.startswith("score ")
        is_share = score and all(0 <= sample.original <= 1 for sample in samples)
        result = estimate(samples, weighted=False, share=is_share)
        print(format_row(name, result))
        if score and result.low is not None:
            print(f"{'':24} a drop of more than {max(0.0, -result.low):.3f} is excluded, a smaller one is not")
    if dropped:
        why = next((" ".join(sample.error.message.split())[:200] for sample in log.samples if sample.error), "")
        print(f"{dropped} samples omitted, because all runs of a variant failed. First error: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--model", required=True)
    parser.add_argument("--limit", type=int, help="number of samples (default: all)")
    parser.add_argument("--epochs", type=int, default=1, help="runs of each sample in each variant")
    parser.add_argument("--profile", default="lossless")
    parser.add_argument("--log-dir", help="where Inspect writes its log")
    options = parser.parse_args()

    @hooks(name="ibidem_ab", description="Rewrites requests in every second epoch.")
    class EveryOther(IbidemHooks):
        profile = options.profile

        def rewrites(self, data, sample):
            # A judge model reads the unchanged text.
            is_task_model = data.model_name.rpartition("/")[2] == options.model.rpartition("/")[2]
            return is_task_model and sample is not None and is_rewritten(sample.epoch)

    limits = {"limit": options.limit, "epochs": 2 * options.epochs, "fail_on_error": False}
    (log,) = inspect_ai.eval(options.task, model=options.model, display="none", log_dir=options.log_dir, **limits)
    if log.status != "success":
        raise SystemExit(f"{options.task}: the evaluation ended with {log.status}: {log.error and log.error.message}")
    report(log, options.epochs)


if __name__ == "__main__":
    main()
