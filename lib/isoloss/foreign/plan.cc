#include "isoloss/foreign/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "isoloss/foreign/text.h"
#include "isoloss/foreign/told.h"

namespace isoloss::foreign {
namespace {

/// Text beyond this length is no part of a name or an error.
constexpr size_t kLongest = 400;

bool IsCapital(char c) {
  return std::isupper(static_cast<unsigned char>(c)) != 0;
}

using Names = std::span<const std::string_view>;

bool IsOneOf(Names names, const Word& word) {
  return std::ranges::count(names, word.letters) != 0;
}

constexpr std::string_view kSteps[] = {"steps", "iterations", "iters",
                                       "updates"};
/// A single "step" is the current one, unless a name calls it the last.
constexpr std::string_view kSingularSteps[] = {"step", "iteration", "iter"};
constexpr std::string_view kLast[] = {"max", "maximum", "end", "final"};
constexpr std::string_view kBehind[] = {"total", "max", "planned"};
/// A name with one of these words is about all steps of a run.
constexpr std::string_view kAll[] = {"max",   "maximum", "num",      "number",
                                     "total", "train",   "training", "end",
                                     "final", "planned"};
constexpr std::string_view kBesides[] = {
    "of",     "trainer", "optimization", "optimizer", "global", "gradient",
    "update", "args",    "config",       "cfg",       "hparams"};
/// A name with one of these words is about a part of the run, or no training.
constexpr std::string_view kParts[] = {
    "per",       "warmup",    "warm",       "eval",       "evaluation",
    "val",       "valid",     "validation", "test",       "save",
    "saving",    "log",       "logging",    "interval",   "every",
    "each",      "decay",     "cooldown",   "checkpoint", "accumulation",
    "benchmark", "bench",     "profile",    "profiling",  "profiler",
    "inference", "sampling",  "generation", "curriculum", "tuning",
    "scheduler", "skip",      "skipped",    "skipping",   "resume",
    "resumed",   "micro",     "rollout",    "agent",      "env",
    "episode",   "diffusion", "print",      "report"};

/// Finds "training for 120 steps".
bool SaysFor(const std::vector<Word>& words, std::string_view behind) {
  const std::vector<Word> next = WordsOf(behind.substr(0, kLongest));
  const size_t count = words.size();
  return count > 1 && words[count - 1].letters == "for" &&
         words[count - 2].letters.starts_with("train") && !next.empty() &&
         IsOneOf(kSteps, next[0]) &&
         (next.size() == 1 || !IsOneOf(kParts, next[1]));
}

}  // namespace

bool NamesPlan(std::string_view text, std::string_view behind) {
  if (text.size() > kLongest) text.remove_prefix(text.size() - kLongest);
  std::vector<Word> words = WordsOf(text);
  const auto is_part = [](const Word& word) { return IsOneOf(kParts, word); };
  if (words.empty() || std::ranges::any_of(words, is_part)) return false;
  if (SaysFor(words, behind)) return true;
  // "steps_total" means the same as "total steps".
  if (words.size() > 1 && IsOneOf(kBehind, words.back())) {
    std::swap(words.back().letters, words[words.size() - 2].letters);
  }
  const bool one = IsOneOf(kSingularSteps, words.back());
  if (!one && !IsOneOf(kSteps, words.back())) return false;
  bool all = false;
  size_t first = words.size() - 1;
  for (; first > 0; --first) {
    const Word& word = words[first - 1];
    if (!IsOneOf(kAll, word) && !IsOneOf(kBesides, word)) break;
    all |= IsOneOf(one ? Names(kLast) : Names(kAll), word);
  }
  // "env.max_steps" is something else than a plan.
  const size_t begin = words[first].begin;
  const bool joined =
      first > 0 &&
      std::string_view("._/-").find(text[begin - 1]) != std::string_view::npos;
  return all && !joined;
}

void TakePlan(ForeignRun& run) {
  if (run.step_unit != "step" || run.format == "mllog") return;
  int64_t by_words = 0;
  const auto take = [&](std::string_view name, double value) {
    if (!(value >= 1 && value <= static_cast<double>(kMostWhole))) return;
    const auto step = static_cast<int64_t>(value);
    if (IsPlannedSteps(name)) {
      run.steps_planned = std::max(run.steps_planned, step);
    } else if (NamesPlan(name)) {
      by_words = std::max(by_words, step);
    }
  };
  for (const auto& [name, value] : run.settings) take(name, value);
  for (const Series& series : run.series) {
    // A number that grows is no plan.
    if (std::ranges::count(series.value, series.value.front()) ==
        std::ssize(series.value)) {
      take(series.name, series.value.front());
    }
  }
  take("planned updates", StepsOfEpochs(run));
  if (run.steps_planned == 0) run.steps_planned = by_words;
}

namespace {

/// Finds "exit code 1", "exitcode: -9", "exit status 2"; else returns "".
std::string ExitIn(std::string_view line) {
  constexpr size_t kNear = 20;
  size_t at = line.find("xit");
  if (at == std::string_view::npos) return "";
  line.remove_prefix(at);
  for (const std::string_view word : {"code", "status"}) {
    at = line.substr(0, kNear).find(word);
    if (at == std::string_view::npos) continue;
    std::string_view rest = line.substr(at + word.size());
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(" :=(")));
    const auto number = LeadingNumber(rest);
    if (!number || number->value == 0) continue;
    return fmt::format("exit {} {}", word, number->text);
  }
  return "";
}

/// Finds "torch.OutOfMemoryError" at a line's front, after any [rank0]; else
/// "".
std::string ExceptionIn(std::string_view line) {
  line = Trimmed(line);
  while (line.starts_with('[') && line.find(']') != std::string_view::npos) {
    line.remove_prefix(line.find(']') + 1);
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(": ")));
  }
  const std::string_view name = line.substr(0, line.find(':'));
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' ||
           c == '_';
  };
  if (!std::ranges::all_of(name, is_part)) return "";
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (last.empty() || !IsCapital(last.front())) return "";
  for (const std::string_view kind : {"Error", "Exception", "Interrupt"}) {
    if (last.ends_with(kind)) return std::string(name);
  }
  return "";
}

/// Finds SIGTERM, Killed, or a stop because a loss is no number; else "".
std::string StopIn(std::string_view line) {
  constexpr std::string_view kSignals[] = {"TERM", "KILL", "ABRT", "SEGV",
                                           "BUS",  "INT",  "HUP",  "XCPU"};
  constexpr std::string_view kEnds[] = {"killed", "aborted", "terminated"};
  constexpr std::string_view kNoNumber[] = {"nan", "inf", "infinite",
                                            "nonfinite", "diverged"};
  constexpr std::string_view kStops[] = {"stop", "exit", "abort", "terminat"};
  bool no_number = false;
  bool stops = false;
  for (const Word& word : WordsOf(line)) {
    const std::string_view text = line.substr(word.begin, word.letters.size());
    const bool capital = IsCapital(text.front());
    const bool is_signal = text.starts_with("SIG") &&
                           std::ranges::count(kSignals, text.substr(3)) != 0;
    if (is_signal || (capital && IsOneOf(kEnds, word))) {
      return std::string(text);
    }
    no_number |= IsOneOf(kNoNumber, word);
    stops |= std::ranges::any_of(kStops, [&word](std::string_view stop) {
      return word.letters.starts_with(stop);
    });
  }
  return no_number && stops ? std::string(Trimmed(line)) : "";
}

}  // namespace

std::string FailureIn(std::string_view line) {
  constexpr std::string_view kFailures[] = {"Traceback (most recent call last)",
                                            "CANCELLED AT",
                                            "DUE TO TIME LIMIT",
                                            "Segmentation fault",
                                            "Bus error",
                                            "core dumped",
                                            "oom-kill",
                                            "Watchdog caught",
                                            "terminate called",
                                            "raining interrupted",
                                            "exiting program"};
  line = line.substr(0, kLongest);
  for (const std::string_view failure : kFailures) {
    if (line.find(failure) != std::string_view::npos) {
      return std::string(failure);
    }
  }
  for (const auto find : {&ExceptionIn, &ExitIn, &StopIn}) {
    std::string failure = find(line);
    if (!failure.empty()) return failure;
  }
  return "";
}

}  // namespace isoloss::foreign
