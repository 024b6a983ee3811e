"""python -m isoloss sick: whether a GPU multiplies as its tensor cores are defined."""

import json
import re
import sys

EXIT_PASS, EXIT_FAIL, EXIT_INVALID, EXIT_INCONCLUSIVE = 0, 1, 3, 4
_SHOWN = 10
# cuBLAS adds these in one chain on an H100 and an H200.
_SHAPES = ((4096, 4096, 4096), (2048, 2048, 1024), (16384, 512, 512))

DESCRIPTION = """Multiplies matrices on a GPU at full load and compares each element with the bits of its
tensor cores' published adder, which the processor computes. Needs PyTorch, an NVIDIA GPU of
compute capability 8.x, 9.0 or 10.x, and no build of isoloss."""
EPILOG = """example: python -m isoloss sick --seconds 600 --device cuda:0
exit codes: 0: no element differs; 1: elements differ, or the card reported an error; 2: wrong
usage; 3: no GPU, no PyTorch or wrong options; 4: products are not those of the adder, so that
nothing can be said"""


def _shape(text):
    found = re.fullmatch(r"(\d{1,6})x(\d{1,6})x(\d{1,6})", text)
    if not found:
        raise ValueError(text)
    return tuple(map(int, found.groups()))


_shape.__name__ = "size MxNxK"  # in argparse's message


def declare(parser):
    parser.add_argument("--seconds", type=float, default=60, help="at full load (default: 60)")
    parser.add_argument("--device", default="cuda:0", help="GPU (default: cuda:0)")
    parser.add_argument("--size", type=_shape, action="append", metavar="MxNxK",
                        help="rows, columns and terms of products; repeatable (default: "
                             f"{', '.join('x'.join(map(str, shape)) for shape in _SHAPES)})")
    parser.add_argument("--adder", action="append", metavar="NAME",
                        help="adder to compare with instead of those of the card; repeatable")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options):
    """Exit code of the command."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        return _refuse(f"needs PyTorch ({error}). Install it: pip install torch "
                       "(the extra `record`)", options.json)
    from . import cards
    try:
        return examine(cards.Card(options.device), options)
    except cards.CardError as error:
        return _refuse(str(error), options.json)
    except cards.CardFailure as error:
        return _refuse(f"the card reported an error: {error}. Take the card out of service.",
                       options.json, EXIT_FAIL)


def _refuse(message, as_json, code=EXIT_INVALID):
    print(f"isoloss: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": message, "exit_code": code}))
    return code


def _adder_names(card, given):
    from . import adders
    from .cards import CardError
    known = ", ".join(adders.ADDERS)
    for name in given or ():
        if name not in adders.ADDERS:
            raise CardError(f"--adder {name}: is not known. Pass one of {known}.")
    names = given or adders.ADDERS_OF_CARD.get(card.capability)
    if not names:
        raise CardError(f"{card.name}: no adder of compute capability "
                        f"{'.'.join(map(str, card.capability))} is known. Pass --adder, one of {known}.")
    return names


def examine(card, options):
    """Multiplies on the card, prints a report and returns the exit code.
    Errors: CardError."""
    import torch

    from . import trials
    from .cards import CardError, first_line
    if not 0 <= options.seconds < 1e7:
        raise CardError(f"--seconds {options.seconds:g}: must lie from 0 to 10^7.")
    names = _adder_names(card, options.adder)
    _tell(f"{card.name}: the processor computes known results")
    each = trials.make_trials(card, names, options.size or _SHAPES)
    begin = card.clock()
    broken = None
    try:
        _take_turns(each, card.clock, options.seconds)
    except RuntimeError as error:
        broken = first_line(error)
        if "out of memory" in broken:
            raise CardError(f"{card.name}: {broken}. Pass a smaller --size, or end what else runs "
                            "on the card.") from error
    finally:
        if sys.stderr.isatty():
            print(file=sys.stderr)
    seconds = card.clock() - begin
    report = _report(card, each, seconds, broken)
    report["torch"] = torch.__version__
    if options.json:
        print(json.dumps(report))
    else:
        _print(report)
    return report["exit_code"]


def _tell(text):
    is_terminal = sys.stderr.isatty()
    print(f"\r\033[K{text}" if is_terminal else text, end="" if is_terminal else "\n",
          file=sys.stderr, flush=True)


def _take_turns(each, clock, seconds):
    """All trials in turn, each at least once, until the seconds are over."""
    begin = clock()
    turn_seconds = seconds / (2 * len(each))
    turn = 0
    while turn < len(each) or clock() - begin < seconds:
        trial = each[turn % len(each)]
        if turn >= len(each) and all(other.not_judged is not None for other in each):
            return
        left = begin + seconds - clock()
        trial.take_turn(max(0, min(turn_seconds, left)), seed=turn)
        if trial.not_judged is None:
            _tell(f"{clock() - begin:.0f} of {seconds:g} s: {trial.adder.name} "
                  f"{_text(trial.shape)}: {trial.elements:,} elements, {trial.wrong:,} wrong, "
                  f"{trial.rate() / 1e12:.1f} TFLOP/s")
        turn += 1


def _text(shape):
    return "x".join(map(str, shape))


def _pattern(trial):
    from . import bit_patterns
    found = trial.deviations
    if not found:
        return (f"the card's comparison called {trial.wrong:,} elements wrong that the host finds right: "
                "its memory or its comparison is at fault")
    text = bit_patterns.describe([each.row for each in found], [each.column for each in found],
                                 [each.expected ^ each.found for each in found], trial.shape[:2])
    several = trial.wrong > 1
    missed = f"; the card's own comparison missed {trial.missed:,} of them" if trial.missed else ""
    return (f"{trial.wrong:,} element{'s' if several else ''} of {trial.elements:,} "
            f"differ{'' if several else 's'} from the predicted bits, {text}, "
            f"in {trial.wrong_products:,} of {trial.products:,} products{missed}")


def _case(trial):
    return {
        "adder": trial.adder.name, "shape": _text(trial.shape), "output": trial.output,
        "products": trial.products, "elements": trial.elements, "wrong": trial.wrong,
        "tflops": trial.rate() / 1e12, "digest": trial.digest,
        "not_judged": trial.not_judged, "pattern": _pattern(trial) if trial.wrong else None,
        "deviations": [
            {"product": each.product, "row": each.row, "column": each.column,
             "expected": f"{each.expected:08x}", "found": f"{each.found:08x}",
             "bits": [bit for bit in range(32) if (each.expected ^ each.found) >> bit & 1]}
            for each in trial.deviations[:_SHOWN]]}


def _report(card, each, seconds, broken):
    cases = [_case(trial) for trial in each]
    elements = sum(case["elements"] for case in cases)
    wrong = sum(case["wrong"] for case in cases)
    judged = [case for case in cases if case["products"]]
    kinds = f"{len(judged)} kind{'' if len(judged) == 1 else 's'} of products"
    what = f"{elements:,} elements of {kinds} in {seconds:.1f} s on {card.name}"
    if broken:
        verdict, code = "FAIL", EXIT_FAIL
        text = f"the card reported an error: {broken}"
    elif wrong:
        verdict, code = "FAIL", EXIT_FAIL
        text = f"{wrong:,} of {what} differ from the adder's bits. Take the card out of service"
    elif not judged or any(trial.not_judged and trial.is_offered for trial in each):
        verdict, code = "INCONCLUSIVE", EXIT_INCONCLUSIVE
        text = f"{len(cases) - len(judged)} of {len(cases)} kinds of products can't be judged"
        if judged:
            text += f"; of the others {what} have the adder's bits"
    else:
        verdict, code = "PASS", EXIT_PASS
        names = ", ".join(dict.fromkeys(case["adder"] for case in judged))
        text = (f"{what} have the bits of {names}. Nothing else of the card was looked at")
        if any(case["output"] == "BF16" for case in judged):
            text += ", and this PyTorch gives some results rounded to BF16 only"
    return {"verdict": verdict, "exit_code": code, "text": text, "card": card.name,
            "capability": ".".join(map(str, card.capability)), "seconds": seconds,
            "elements": elements, "wrong": wrong, "cases": cases, "sensors": card.sensors()}


def _print(report):
    print(f"{report['card']}, compute capability {report['capability']}")
    for case in report["cases"]:
        head = f"{case['adder']} {case['shape']}"
        if case["not_judged"]:
            print(f"  {head}: not judged: {case['not_judged']}.")
            continue
        print(f"  {head}: {case['elements']:,} elements in {case['output']}, {case['wrong']:,} wrong, "
              f"{case['tflops']:.1f} TFLOP/s")
        if case["wrong"]:
            print(f"    {case['pattern']}.")
        for each in case["deviations"]:
            print(f"    product {each['product']:,}, row {each['row']}, column {each['column']}: "
                  f"expected {each['expected']}, found {each['found']}, bits {each['bits']}")
    if report["sensors"]:
        print("  " + ", ".join(f"{name} {value:g}" for name, value in report["sensors"].items()))
    print(f"{report['verdict']}: {report['text']} (exit code {report['exit_code']}).")
