"""Comments of the C++ sources are sentences; a word that may be a verb counts as one."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGEST = 30
BEGINNING = re.compile(r"(Behind|Of|Than|Those|What|Which|Who|Whom|Whose)\b")
NO_PROSE = re.compile(r"NOLINT|clang-format|namespace\b|https?:|[-=]{3}")
MADE_VERB = re.compile("[a-z]{4}([^cw]i[sz]es?|if(y|ies))$|n't$")
# These words and their forms with -s are verbs.
VERBS = set("""abort accept accumulate accuse add adjust agree align allocate allow alter am appear append apply
approve are arrive ascend ask assert assign assume attach attribute bear became become began begin behave
belong bend bring broadcast broke brought build buy came can cancel cannot carry catch choose chose clamp
coincide collapse collect combine come communicate compare compile compress compute concatenate concern
conclude connect consider consist construct consume contain continue contradict contribute converge convert
correspond could crash create decide declare decode decorate define delete deliver deny depend derive descend
describe destroy detect develop did die differ discard diverge divide do does download drew drift emit encode
ended ensure enter erase err evaluate evict examine exceed exclude execute exist expand expect explain fail
failed favour fell fill find finish flatten flush follow forbid forget found freeze gave generate get give go
got grew grow had halve handle hang happen happened has have hear heard held hide hold ignore imitate implement
imply include indent inherit insert install instantiate interact interpolate interrupt intersect introduce
invoke involve is join jump keep kept kill knew know lack laid last lay learn leave left let lie listen look
lose lost made make matter may measure meet mention merge met might miss modify multiply must need nest notify
obey observe obtain occupy occur omit override overrule parse pay perform persist perturb poll precede predict
prefer prepare prevent print produce promote propose prove publish put raise ran reach read receive recover
redraw reduce refer refuse reject rely remain remember remove render replace replay represent require resample
resolve respect restore resume return reveal rose rotate said sat saturate save saw say scatter see seem select
send sent serve settle shall shorten should show shrank shrink shuffle sit skip sleep speak spend spent spoke
start stay stood stop stopped submit subtract suffice suggest survive swallow swap take teach tell think threw
throw told took touch train translate transpose travel truncate try understand understood unpack validate
vanish vary verify wait want warn was watch weigh went were widen will win won would write wrote
yield""".split())
# These are nouns or adjectives as often; the words around them decide.
AMBIGUOUS = set("""access act advance aggregate amount answer approximate average back balance bet blame block
book bound bracket break buffer call cast cause chain change charge check claim clean clip close complete
contract contrast copy correct cost count cover cross cut decay delay demand dispatch double draw drive drop
dump end equal escape estimate exchange exit fall fear feed fetch fire fit fix flip flow fork format free
function gather group guard guess hash help hit index judge limit line link list live load lock log loop lower
map mark mask match mean mirror mix move name narrow note offer open order overflow overlap own pack pad paint
pair partition pass permit pick pipe place play point present project promise query quote rank record release
report request rest rise root round route rule run sample scale scan score seal seed separate set shape share
shift signal sort split spread stand state step store sum support sweep tag test trace transfer transform
trust turn underflow update use visit wake warm weight wire work wrap zero""".split())
# No verb with -s follows these directly.
BEFORE_NOUN = set("""a all an and any as at both by each every few for from in into its many more most no of on
or our some than that's the their these this those two with without""".split())
# A noun stands before these; a verb at the beginning of a sentence seldom does.
AFTER_NOUN = set("""above across after against always and are as at before below besides between beyond by for
from if in into is its not of on or over per perhaps plus since than that this through thus towards under
unless until versus when where which while who whose with within without""".split())
OBJECT = set("a all an any both each every it its no the their them these this those through".split())
SUBJECT = {"i", "it", "never", "not", "then", "they", "to", "we", "you"}


def bases(word, ending):
    """The words that become `word` with `ending`, also without a prefix, all spelled with -ise."""
    stem = re.sub("iz(?=es?$|ed$)", "is", word).removesuffix(ending)
    inner = {stem + "e", re.sub("e$", "", stem), re.sub("ie?$", "y", stem), stem[:-1]}
    found = {stem} | (inner if ending else set())
    return found | {re.sub("^(de|over|re)", "", base) for base in found}


def is_verb(before, word, after):
    """Whether `word` may be a verb between its neighbours, which are "" at the ends of a sentence."""
    if bases(word, "") & VERBS or MADE_VERB.search(word):
        return True
    if bases(word, "") & AMBIGUOUS:
        return (before in SUBJECT or bool(re.search("[^isu]s$", before))
                or after in OBJECT and before not in BEFORE_NOUN)
    plural = after not in AFTER_NOUN and re.search("[^s']s$", after)
    takes = after in OBJECT or before not in BEFORE_NOUN and plural
    if re.search("[^s']s$", word):
        if bases(word, "s") & VERBS:
            return True
        of_noun = {"and", "of", "or"} if before else {",", "and", "of", "or", "that", "with"}
        known = bases(word, "s") & AMBIGUOUS and after not in of_noun
        begins = not before and re.match(r"\w", after) and after not in AFTER_NOUN
        return not (before in BEFORE_NOUN or word in AFTER_NOUN) and bool(known or begins or takes)
    return word.endswith("ed") and bool(takes and before and bases(word, "ed") & (VERBS | AMBIGUOUS))


def has_verb(sentence):
    """A comma parts words as the ends of a sentence do, except that no sentence begins after it."""
    words = re.findall(r"[a-z0-9][a-z0-9_']*|[,(\[]", sentence.lower())
    return any(is_verb(before, word, after)
               for before, word, after in zip([""] + words, words, words[1:] + [""]))


def blocks(text):
    """Line and prose of each comment; lines with a label or an indentation are layout, not prose."""
    lines = []
    for number, line in enumerate(text.splitlines() + [""], 1):
        comment = re.match(r"\s*///?(?![/<])(.*)$", line)
        if comment:
            lines.append((number, comment[1].removeprefix(" ").rstrip()))
        elif lines:
            prose = [line for _, line in lines if not re.match(r"\s|[A-Z][a-z]+ {2,}", line)]
            yield lines[0][0], "\n".join(prose).strip()
            lines = []


def faults(prose):
    """The rules that the prose of a comment breaks."""
    if NO_PROSE.match(prose):
        return []
    broken = ["begins without a noun"] if BEGINNING.match(prose) else []
    sentences = re.split(r"(?<=[.?!:;])\s+|\s-\s|\||\n\n", re.sub(r"`[^`]*`", "x", prose))
    formula = re.search(r"(^|\s)([=<>≤≥*/]|[:<>!=+]=)\s|\^", prose)
    if len(re.findall("[A-Za-z]{2,}", prose)) > 2 and not formula and not any(map(has_verb, sentences)):
        broken.append("has no verb")
    if any(len(re.findall(r"[A-Za-z][A-Za-z']*", sentence)) > LONGEST for sentence in sentences):
        broken.append(f"has a sentence of more than {LONGEST} words")
    return broken


class English(unittest.TestCase):
    def test_comments_are_sentences(self):
        sources = sorted(path for folder in ("include", "lib", "tools")
                         for path in (ROOT / folder).rglob("*") if path.suffix in (".cc", ".def", ".h"))
        self.assertGreater(len(sources), 500)
        found = [f"{path.relative_to(ROOT)}:{line}: {fault}: {' '.join(prose.split())}"
                 for path in sources
                 for line, prose in blocks(path.read_text(encoding="utf-8"))
                 for fault in faults(prose)]
        if found:
            self.fail("\n" + "\n".join(found))


class Faults(unittest.TestCase):
    """Each rule reports what it is there for, and nothing else."""

    def check(self, fault, good, bad):
        for prose in good:
            self.assertEqual(faults(prose), [], prose)
        for prose in bad:
            self.assertIn(fault, faults(prose), prose)

    def test_beginnings(self):
        words = "Behind Of Than Those What Which Who Whom Whose".split()
        self.check("begins without a noun", ["Whatever is sent is counted.", "Often this is zero."],
                   [f"{word} the rank is sent." for word in words])

    def test_verbs(self):
        self.check("has no verb", [
            "Folds one row without rounding.", "Messages and errors name `step` from now on.", "Two words",
            "The risk rises with a run.", "Each rank recomputes.", "Nobody applied the scale.", "The parent didn't.",
            "Here they point.", "A step frobnicates the scale.", "All ranks of a mesh call every method.",
            "A mistake multiplied parts of it.", "Falls from 1 to 0.", "count = sum of all rows"], [
            "The rounded operand, with its bits.", "Names, shares and errors of products.",
            "Sums of the neighbours before and noise.", "The name of each step in a run.",
            "Applied by the algorithm.", "Only the counts in this test.", "Bits besides the columns."])

    def test_length(self):
        self.check("has a sentence of more than 30 words",
                   ["This is " + "so " * 27 + "long.", "This is " + "so " * 20 + "long: " + "is " * 20,
                    "It is `" + "code " * 30 + "`."],
                   ["This is " + "so " * 28 + "long.", "It is. This is " + "so " * 28 + "long."])

    def test_blocks(self):
        text = ("// One is\n// two.\n///\n/// Three.\nint a;  // Four.\n  ///< Five.\n"
                "  /// Six.\n  /// Errors   Seven\n  ///          Eight\n//// Nine\n")
        self.assertEqual(list(blocks(text)), [(1, "One is\ntwo.\n\nThree."), (7, "Six.")])


if __name__ == "__main__":
    unittest.main()
