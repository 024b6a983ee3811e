#include "isoloss/foreign/told.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>

#include "isoloss/base/named.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

constexpr std::string_view kSamples = "samples seen";
constexpr std::string_view kTokens = "tokens seen";
constexpr std::string_view kGlobalBatch = "global batch size";
constexpr std::string_view kBatch = "batch size";
constexpr std::string_view kLength = "sequence length";
constexpr std::string_view kRanks = "world size";
constexpr std::string_view kAccumulation = "gradient accumulation steps";
constexpr std::string_view kStepTokens = "tokens of a step";
constexpr std::string_view kSequences = "number of sequences";
constexpr std::string_view kReplicas = "data-parallel size";
/// No fact of the batches: the step at which the run is to end.
constexpr std::string_view kPlanned = "planned steps";

/// In letters and digits alone. What one rank takes at once is known, too, so
/// that its end is not read as something else: with it nothing need be equal.
constexpr Named<std::string_view> kFactNames[] = {
    {"consumedsamples", kSamples},
    {"consumedtrainsamples", kSamples},
    {"samplesseen", kSamples},
    {"seensamples", kSamples},
    {"nsamplesseen", kSamples},
    {"numsamplesseen", kSamples},
    {"trainsamplesseen", kSamples},
    {"totalsamples", kSamples},
    {"numsamples", kSamples},
    {"nsamples", kSamples},
    {"samples", kSamples},
    {"samplescount", kSamples},
    {"examplesseen", kSamples},
    {"numexamplesseen", kSamples},
    {"nexamplesseen", kSamples},
    {"totalexamples", kSamples},
    {"consumedexamples", kSamples},
    {"numberofsequences", kSequences},
    {"sequences", kSequences},
    {"nsequences", kSequences},
    {"numsequences", kSequences},
    {"sequencesseen", kSequences},
    {"tokensofastep", kStepTokens},
    {"tokensperstep", kStepTokens},
    {"numtokensperstep", kStepTokens},
    {"tokensperbatch", kStepTokens},
    {"tokensperupdate", kStepTokens},
    {"tokensperiteration", kStepTokens},
    {"tokensperiterationwillbe", kStepTokens},
    {"ntokens", kStepTokens},
    {"batchtokens", kStepTokens},
    {"timesample", kSamples},
    {"consumedtokens", kTokens},
    {"consumedtraintokens", kTokens},
    {"tokensseen", kTokens},
    {"seentokens", kTokens},
    {"ntokensseen", kTokens},
    {"numtokensseen", kTokens},
    {"numinputtokensseen", kTokens},
    {"totaltokens", kTokens},
    {"totaltokensseen", kTokens},
    {"numtokens", kTokens},
    {"traintokens", kTokens},
    {"timetoken", kTokens},
    {"tokens", kTokens},
    {"epoch", kEpochsSeen},
    {"epochs", kEpochsSeen},
    {"currentepoch", kEpochsSeen},
    {"trainepoch", kEpochsSeen},
    {"globalbatchsize", kGlobalBatch},
    {"globalbatch", kGlobalBatch},
    {"globaltrainbatchsize", kGlobalBatch},
    {"gbs", kGlobalBatch},
    {"effectivebatchsize", kGlobalBatch},
    {"effectivebatch", kGlobalBatch},
    {"totalbatchsize", kGlobalBatch},
    {"totaltrainbatchsize", kGlobalBatch},
    {"batchsize", kBatch},
    {"trainbatchsize", kBatch},
    {"bsz", kBatch},
    {"localbatchsize", ""},
    {"microbatchsize", ""},
    {"devicebatchsize", ""},
    {"seqlen", kLength},
    {"seqlength", kLength},
    {"sequencelength", kLength},
    {"encoderseqlength", kLength},
    {"maxseqlen", kLength},
    {"maxseqlength", kLength},
    {"maxsequencelength", kLength},
    {"contextlength", kLength},
    {"blocksize", kLength},
    {"worldsize", kRanks},
    {"numgpus", kRanks},
    {"ngpus", kRanks},
    {"numranks", kRanks},
    {"numdevices", kRanks},
    {"dataparallelsize", kReplicas},
    {"dataparalleldegree", kReplicas},
    {"dataparallelworldsize", kReplicas},
    {"dpsize", kReplicas},
    {"dpdegree", kReplicas},
    {"dpworldsize", kReplicas},
    {"gradientaccumulationsteps", kAccumulation},
    {"gradientaccumulation", kAccumulation},
    {"gradaccumsteps", kAccumulation},
    {"gradaccum", kAccumulation},
    {"accumulategradbatches", kAccumulation},
    {"nummicrobatches", kAccumulation},
    {"totalsteps", kPlanned},
    {"totaloptimizationsteps", kPlanned},
    {"maxiters", kPlanned},
    {"trainiters", kPlanned},
    {"plannedsteps", kPlanned},
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

/// By as many of the last words as make up a known name; "" where any word says
/// that no training is meant.
std::string_view FactAtEndOf(std::string_view text) {
  const size_t note = text.find(" (");
  if (note != std::string_view::npos) text = text.substr(0, note);
  constexpr std::string_view kFill = " \t.:=|\"'";
  text = text.substr(0, text.find_last_not_of(kFill) + 1);
  if (SaysEvaluation(text)) return "";
  std::string_view fact;
  size_t begin = text.size();
  constexpr int kMostWords = 5;
  for (int words = 0; words < kMostWords && begin > 0; ++words) {
    const size_t blank = text.find_last_of(" \t\"'>", begin - 1);
    begin = blank == std::string_view::npos ? 0 : blank;
    const size_t first = blank == std::string_view::npos ? 0 : blank + 1;
    if (const auto* known = Find(text.substr(first))) fact = known->value;
  }
  return fact;
}

/// "train batch size (w. parallel, accumulation) = 64": a note without a number
/// is no part of the name.
std::string WithoutNotes(std::string_view line) {
  std::string plain(line);
  size_t begin = 0;
  while ((begin = plain.find(" (", begin)) != std::string::npos) {
    const size_t end = plain.find(')', begin);
    if (end == std::string::npos) break;
    const std::string_view note =
        std::string_view(plain).substr(begin, end - begin);
    if (note.find_first_of("0123456789") != std::string_view::npos) {
      begin = end;
      continue;
    }
    plain.erase(begin, end + 1 - begin);
  }
  return plain;
}

/// What grows over a run is none of its settings.
bool Grows(std::string_view fact) { return fact.ends_with(" seen"); }

}  // namespace

namespace {

std::string_view FactNamed(std::string_view name) {
  const size_t path = name.find_last_of("/.");
  for (const std::string_view part :
       {name, path == std::string_view::npos ? name : name.substr(path + 1)}) {
    if (const auto* known = Find(part)) return known->value;
  }
  return "";
}

}  // namespace

std::string_view BatchFactNamed(std::string_view name) {
  const std::string_view fact = FactNamed(name);
  return fact == kPlanned ? "" : fact;
}

void SettingsReader::Read(std::string_view line, ForeignRun& run) {
  constexpr size_t kLongestLine = 1000;
  if (line.size() > kLongestLine) return;
  ReadHeading(line);
  if (evaluates_) return;
  const std::string plain = WithoutNotes(line);
  line = plain;
  size_t begin = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (c == ',' || c == ';' || c == '{') begin = at + 1;
    const bool starts =
        std::isdigit(static_cast<unsigned char>(c)) != 0 && at > begin &&
        std::string_view(" \t:=.").find(line[at - 1]) != std::string_view::npos;
    if (!starts) continue;
    const auto number = LeadingNumber(line.substr(at));
    if (!number) continue;
    const std::string_view fact = FactAtEndOf(line.substr(begin, at - begin));
    at += std::max<size_t>(number->text.size(), 1) - 1;
    begin = at + 1;
    // A rate or a mean has a fraction.
    if (fact.empty() || number->value != std::floor(number->value)) continue;
    // One that is told twice otherwise, as after a restart, says nothing.
    const auto [known, is_new] =
        run.settings.try_emplace(std::string(fact), number->value);
    if (!is_new && known->second != number->value) known->second = std::nan("");
  }
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
  if (evaluates_ && indent > indent_) return;  // a part of what is below
  evaluates_ = SaysEvaluation(line) && !SaysTraining(line);
  indent_ = indent;
}

void TakePlan(ForeignRun& run) {
  if (run.step_unit != "step" || run.format == "mllog") return;
  const auto take = [&run](std::string_view name, double value) {
    // Printed settings have `max_steps` of much else, too.
    const bool plan = FactNamed(name) == kPlanned ||
                      LettersOf(name.substr(name.rfind('/') + 1)) == "maxsteps";
    if (!plan || !(value >= 1 && value <= static_cast<double>(kMostWhole))) {
      return;
    }
    run.steps_planned =
        std::max(run.steps_planned, static_cast<int64_t>(value));
  };
  for (const auto& [name, value] : run.settings) take(name, value);
  for (const Series& series : run.series) {
    // One that grows is no plan.
    if (std::ranges::count(series.value, series.value.front()) !=
        std::ssize(series.value)) {
      continue;
    }
    take(series.name, series.value.front());
  }
}

std::vector<runlog::Told::Number> BatchFactsOf(const ForeignRun& run) {
  std::vector<runlog::Told::Number> facts;
  const auto is_new = [&facts](std::string_view name) {
    return !name.empty() &&
           std::ranges::none_of(
               facts, [name](const auto& fact) { return fact.name == name; });
  };
  for (const Series& series : run.series) {
    const std::string_view name = BatchFactNamed(series.name);
    if (!is_new(name)) continue;
    facts.push_back({std::string(name), series.step, series.value});
  }
  for (const auto& [key, value] : run.settings) {
    const std::string_view name = BatchFactNamed(key);
    if (!is_new(name) || Grows(name) || !std::isfinite(value)) continue;
    facts.push_back({std::string(name), {0}, {value}});
  }
  return facts;
}

namespace {

/// How a series says that no weight moved.
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

/// 0 where as many updates were skipped as steps were made since the row
/// before.
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

/// All digits of an FP32 norm of many weights stand still only with them.
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
