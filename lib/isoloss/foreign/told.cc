#include "isoloss/foreign/told.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>

#include "isoloss/base/named.h"
#include "isoloss/foreign/batch_names.h"
#include "isoloss/foreign/plan.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

/// The run is to end at this step, which is no fact of its batches.
constexpr std::string_view kPlanned = "planned steps";
/// These words may mean the same, but in places they name something else.
constexpr std::string_view kPlannedToo = "planned updates";
constexpr std::string_view kPlannedOfEpoch = "planned steps of an epoch";
constexpr std::string_view kPlannedEpochs = "planned epochs";

/// The names have only letters and digits.
constexpr Named<std::string_view> kFactNames[] = {
    {"totalsteps", kPlanned},
    {"totaloptimizationsteps", kPlanned},
    {"maxiters", kPlanned},
    {"trainiters", kPlanned},
    {"plannedsteps", kPlanned},
    {"configparamsteps", kPlanned},  // of MaxText
    {"stepsperepoch", kPlannedOfEpoch},
    {"iterationsperepoch", kPlannedOfEpoch},
    {"itersperepoch", kPlannedOfEpoch},
    {"numepochs", kPlannedEpochs},
    {"maxepochs", kPlannedEpochs},
    {"totalepochs", kPlannedEpochs},
    {"numtrainepochs", kPlannedEpochs},
};

std::string LettersOf(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0) continue;
    letters += static_cast<char>(std::tolower(byte));
  }
  return letters;
}

const Named<std::string_view>* Find(std::string_view name) {
  constexpr size_t kLongest = 64;
  if (name.size() > kLongest) return nullptr;
  const std::string letters = LettersOf(name);
  const auto* found = std::ranges::find(kFactNames, std::string_view(letters),
                                        &Named<std::string_view>::name);
  return found == std::end(kFactNames) ? nullptr : found;
}

/// Returns the fact of a setting by the words before its number in `line`: the
/// last ones that make up a known name. Further words before them make the name
/// unsure, unless the line is of a training. Returns "" if a word means no
/// fact.
std::string FactAtEndOf(std::string_view text, std::string_view line) {
  const size_t note = text.find(" (");
  if (note != std::string_view::npos) {
    if (text.find("per ", note) != std::string_view::npos) return "";
    text = text.substr(0, note);
  }
  text = text.substr(0, text.find_last_not_of(" \t.:=|\"'") + 1);
  text = text.substr(text.find_last_of("]|>") + 1);
  const size_t topic = text.rfind(": ");
  if (topic != std::string_view::npos) text = text.substr(topic + 2);
  if (SaysEvaluation(text)) return "";
  BatchName fact;
  std::string plan;
  bool says_other = false;
  constexpr int kMostWords = 5;
  size_t begin = text.size();
  for (int words = 0; words < kMostWords && begin > 0; ++words) {
    const size_t blank = text.find_last_of(" \t\"'", begin - 1);
    begin = blank == std::string_view::npos ? 0 : blank;
    const size_t first = blank == std::string_view::npos ? 0 : blank + 1;
    if (const auto* known = Find(text.substr(first))) plan = known->value;
    const BatchName name = BatchNamed(text.substr(first));
    // A word before it may change the fact: "local batch size".
    says_other |= name.fact.empty() && !fact.fact.empty();
    if (name.sure || !fact.sure || !SaysTraining(line)) fact = name;
  }
  if (!plan.empty() || says_other || fact.fact.empty()) return plan;
  const bool lists = line.find_first_of("={(") != std::string_view::npos;
  const std::string_view said =
      lists ? text : line.substr(line.find_last_of("]|>") + 1);
  return SaysOtherPurpose(said) ? "" : fact.fact;
}

/// Returns whether a setting belongs to the whole program. A setting of a part
/// of it is indented, or in braces within braces.
bool IsOfAll(std::string_view line, size_t at) {
  const auto depth = std::ranges::count(line.substr(0, at), '{') -
                     std::ranges::count(line.substr(0, at), '}');
  const bool indented = line.starts_with(' ') || line.starts_with('\t');
  return depth <= 1 &&
         (!indented || line.find(" ...") != std::string_view::npos);
}

/// Returns the fact of the number at `at`, which follows `words`.
std::string FactOf(std::string_view words, std::string_view line, size_t at) {
  std::string fact = FactAtEndOf(words, line.substr(0, at));
  if (!fact.empty() || !IsOfAll(line, at)) return fact;
  // The name before the braces counts, too: "scheduler = {'num_steps': 60}".
  std::string names(line.substr(0, std::min(line.find('{'), at)));
  if (names.size() == at) names.clear();
  names.append(" ").append(words);
  const std::string_view behind =
      line.substr(std::min(line.size(), line.find_first_of(" \t", at)));
  return NamesPlan(names, behind) ? std::string(kPlannedToo) : fact;
}

/// Removes notes without a number, which are no part of a name: "train batch
/// size (w. parallel, accumulation) = 64". A note as "(per GPU)" stays.
std::string WithoutNotes(std::string_view line) {
  std::string plain(line);
  size_t begin = 0;
  while ((begin = plain.find(" (", begin)) != std::string::npos) {
    const size_t end = plain.find(')', begin);
    if (end == std::string::npos) break;
    const std::string_view note =
        std::string_view(plain).substr(begin, end - begin);
    if (note.find_first_of("0123456789") != std::string_view::npos ||
        note.find("per ") != std::string_view::npos) {
      begin = end;
      continue;
    }
    plain.erase(begin, end + 1 - begin);
  }
  return plain;
}

std::string_view FactNamed(std::string_view name) {
  const size_t path = name.find_last_of("/.");
  for (const std::string_view part :
       {name, path == std::string_view::npos ? name : name.substr(path + 1)}) {
    if (const auto* known = Find(part)) return known->value;
  }
  return "";
}

/// Returns the fact that the noun after a number names: "on 64 GPUs".
std::string FactBehind(std::string_view rest, std::string_view line) {
  const std::string_view noun = TakeWord(rest);
  const BatchName name = BatchNamed(noun);
  if (name.fact != "world size" || SaysOtherPurpose(line)) return "";
  const bool all = SaysTraining(line) && rest.find("per ") != 1;
  return all ? name.fact : "number of " + std::string(noun) + " in the text";
}

/// Returns the line with one digit for each run of digits.
std::string FormOf(std::string_view line) {
  std::string form;
  bool in_digits = false;
  for (const char c : line) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit || !in_digits) form += digit ? '0' : c;
    in_digits = digit;
  }
  return form;
}

}  // namespace

void SettingsReader::Read(std::string_view line, ForeignRun& run) {
  constexpr size_t kLongestLine = 1000;
  if (line.size() > kLongestLine) return;
  ReadHeading(line);
  if (evaluates_) return;
  std::string form = FormOf(line);
  if (silent_.contains(form)) return;
  bool is_silent = true;
  const std::string plain = WithoutNotes(line);
  line = plain;
  size_t begin = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    const bool call = c == '(' && at > 0 && line[at - 1] != ' ';
    if (c == ',' || c == ';' || c == '{' || call) begin = at + 1;
    const bool starts =
        std::isdigit(static_cast<unsigned char>(c)) != 0 && at > begin &&
        std::string_view(" \t:=.").find(line[at - 1]) != std::string_view::npos;
    if (!starts) continue;
    const auto number = LeadingNumber(line.substr(at));
    is_silent &= number.has_value();
    if (!number) continue;
    std::string fact = FactOf(line.substr(begin, at - begin), line, at);
    at += std::max<size_t>(number->text.size(), 1) - 1;
    if (fact.empty()) fact = FactBehind(line.substr(at + 1), line);
    begin = at + 1;
    is_silent &= fact.empty();
    // A rate or a mean has a fraction.
    if (fact.empty() || number->value != std::floor(number->value)) continue;
    // A setting that is told with two values, as after a restart, says nothing.
    const auto [known, is_new] =
        run.settings.try_emplace(std::move(fact), number->value);
    if (!is_new && known->second != number->value) known->second = std::nan("");
  }
  constexpr size_t kMostForms = 4096;
  if (is_silent && silent_.size() < kMostForms) silent_.insert(std::move(form));
}

void SettingsReader::ReadHeading(std::string_view line) {
  constexpr std::string_view kRules[] = {"***", "===", "---"};
  const size_t indent = line.find_first_not_of(" \t");
  line = Trimmed(line);
  const bool heads = line.ends_with(':') || line.ends_with('{') ||
                     std::ranges::any_of(kRules, [line](std::string_view rule) {
                       return line.find(rule) != std::string_view::npos;
                     });
  if (!heads || LettersOf(line).empty()) return;
  if (evaluates_ && indent > indent_) return;  // a part of the evaluation
  evaluates_ = SaysEvaluation(line) && !SaysTraining(line);
  indent_ = indent;
}

bool IsPlannedSteps(std::string_view name) {
  return FactNamed(name) == kPlanned;
}

double StepsOfEpochs(const ForeignRun& run) {
  const auto told = [&run](std::string_view fact, double unless) {
    const auto found = run.settings.find(fact);
    return found == run.settings.end() ? unless : found->second;
  };
  // With gradient accumulation, an epoch may count micro-batches.
  if (told("gradient accumulation steps", 1) != 1) return 0;
  const double epochs = told(kPlannedEpochs, told(kEpochsSeen, 0));
  return epochs * told(kPlannedOfEpoch, 0);
}

namespace {

/// Returns whether the values are equal, or grow by one amount in each step.
bool IsLinear(const Series& series) {
  constexpr double kFp32 = 0x1p-22;  // of an event file
  if (series.step.size() < 3) return false;
  const double steps =
      static_cast<double>(series.step.back() - series.step.front());
  const double rise = (series.value.back() - series.value.front()) / steps;
  for (size_t i = 0; i < series.step.size(); ++i) {
    const auto from_first =
        static_cast<double>(series.step[i] - series.step.front());
    const double due = series.value.front() + rise * from_first;
    const double unit =
        series.digits.decimals > 0 ? 2 * series.digits.HalfUnit(due) : 0;
    if (!(std::fabs(series.value[i] - due) <= unit + kFp32 * std::fabs(due))) {
      return false;
    }
  }
  return true;
}

/// Returns whether the values count something. Counts are whole, and counts of
/// what was seen do not fall; a rate does fall.
bool IsCount(const Series& series, const BatchName& name) {
  if (name.fact == kEpochsSeen) return true;
  const bool rises = std::ranges::is_sorted(series.value);
  const bool whole = std::ranges::all_of(
      series.value, [](double value) { return value == std::floor(value); });
  if (!name.sure) return IsLinear(series) && rises && (whole || name.grows);
  return name.grows ? rises : whole;
}

/// Returns a series' fact. If "tokens seen" is constant, it is of one step.
std::string SeriesFact(const Series& series, const BatchName& name) {
  constexpr std::string_view kSeen = " seen";
  const bool one =
      series.value.size() > 1 && series.value.front() == series.value.back();
  if (!name.sure || !one || name.fact == kEpochsSeen ||
      !name.fact.ends_with(kSeen)) {
    return name.fact;
  }
  return name.fact.substr(0, name.fact.size() - kSeen.size()) + " of a step";
}

}  // namespace

std::vector<runlog::Told::Number> BatchFactsOf(const ForeignRun& run) {
  std::vector<runlog::Told::Number> facts;
  const auto is_new = [&facts](const std::string& name) {
    return !name.empty() &&
           std::ranges::none_of(
               facts, [&name](const auto& fact) { return fact.name == name; });
  };
  for (const Series& series : run.series) {
    const BatchName name = BatchNamed(series.name);
    if (name.fact.empty() || !IsCount(series, name)) continue;
    const std::string fact = SeriesFact(series, name);
    if (is_new(fact))
      facts.push_back({fact, series.step, series.value, name.sure});
  }
  for (const auto& [key, value] : run.settings) {
    const BatchName name = BatchNamed(key);
    if (!is_new(name.fact) || name.grows || !std::isfinite(value)) continue;
    facts.push_back({name.fact, {0}, {value}, name.sure});
  }
  return facts;
}

bool IsLossScale(std::string_view name) {
  constexpr std::string_view kScales[] = {
      "lossscale", "lossscaler", "gradscale", "gradscaler", "gradientscale"};
  const std::string letters = LettersOf(name);
  return std::ranges::any_of(kScales, [&letters](std::string_view scale) {
    return letters.ends_with(scale);
  });
}

namespace {

/// A series says by one of these signs that no weight moved.
enum class IdleSign {
  kNone,
  kSkipped,
  kSkippedSoFar,
  kUpdateNorm,
  kWeightNorm
};

IdleSign IdleSignOf(std::string_view name) {
  constexpr Named<IdleSign> kSigns[] = {
      {"numberofskippediterations", IdleSign::kSkipped},
      {"skippediterations", IdleSign::kSkipped},
      {"skippedsteps", IdleSign::kSkippedSoFar},
      {"skipped", IdleSign::kSkippedSoFar},
      {"updatenorm", IdleSign::kUpdateNorm},
      {"paramsnorm", IdleSign::kWeightNorm},
      {"paramnorm", IdleSign::kWeightNorm},
      {"weightnorm", IdleSign::kWeightNorm},
  };
  const std::string letters = LettersOf(name.substr(name.rfind('/') + 1));
  const auto* found = std::ranges::find(kSigns, std::string_view(letters),
                                        &Named<IdleSign>::name);
  return found == std::end(kSigns) ? IdleSign::kNone : found->value;
}

/// Returns 0 where a row skipped as many updates as it has steps, else 1.
std::vector<double> UpdatesOf(const Series& series, bool so_far) {
  std::vector<double> made;
  for (size_t i = 0; i < series.step.size(); ++i) {
    const int64_t steps = series.step[i] - (i == 0 ? 0 : series.step[i - 1]);
    const double before = so_far && i > 0 ? series.value[i - 1] : 0;
    const double skipped = series.value[i] - before;
    made.push_back(
        skipped >= std::max<double>(1, static_cast<double>(steps)) ? 0 : 1);
  }
  return made;
}

/// Returns whether a norm of the weights stands still. All digits of an FP32
/// norm of many weights only do so if no weight moves.
bool StandsStill(const Series& norm) {
  constexpr size_t kFewest = 20;
  return norm.value.size() >= kFewest && norm.digits.exact() &&
         std::ranges::count(norm.value, norm.value.front()) ==
             std::ssize(norm.value);
}

}  // namespace

std::vector<runlog::Told::Idle> IdleOf(const ForeignRun& run) {
  std::vector<runlog::Told::Idle> signs;
  for (const Series& series : run.series) {
    const IdleSign sign = IdleSignOf(series.name);
    runlog::Told::Idle idle{.says = "", .step = series.step, .value = {}};
    if (sign == IdleSign::kSkipped || sign == IdleSign::kSkippedSoFar) {
      idle.says = "the log says that the update was skipped";
      idle.value = UpdatesOf(series, sign == IdleSign::kSkippedSoFar);
      idle.may_begin = true;
    } else if (sign == IdleSign::kUpdateNorm) {
      idle.says = "the norm of the update is 0";
      idle.value = series.value;
      idle.half_unit = series.digits.HalfUnit(1);
    } else if (sign == IdleSign::kWeightNorm && StandsStill(series)) {
      idle.says = "the norm of the weights stands still";
      idle.value.assign(series.step.size(), 0);
    }
    if (!idle.value.empty()) signs.push_back(std::move(idle));
  }
  return signs;
}

}  // namespace isoloss::foreign
