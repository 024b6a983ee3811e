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
    {"globalbatchsize", kGlobalBatch},
    {"globalbatch", kGlobalBatch},
    {"globaltrainbatchsize", kGlobalBatch},
    {"gbs", kGlobalBatch},
    {"effectivebatchsize", kGlobalBatch},
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
    {"dataparallelsize", kRanks},
    {"gradientaccumulationsteps", kAccumulation},
    {"gradientaccumulation", kAccumulation},
    {"gradaccumsteps", kAccumulation},
    {"gradaccum", kAccumulation},
    {"accumulategradbatches", kAccumulation},
    {"nummicrobatches", kAccumulation},
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

/// By as many of the last words as make up a known name.
std::string_view FactAtEndOf(std::string_view text) {
  const size_t note = text.find(" (");
  if (note != std::string_view::npos) text = text.substr(0, note);
  constexpr std::string_view kFill = " \t.:=\"'";
  text = text.substr(0, text.find_last_not_of(kFill) + 1);
  std::string_view fact;
  size_t begin = text.size();
  constexpr int kMostWords = 4;
  for (int words = 0; words < kMostWords && begin > 0; ++words) {
    const size_t blank = text.find_last_of(" \t\"'>", begin - 1);
    begin = blank == std::string_view::npos ? 0 : blank;
    const size_t first = blank == std::string_view::npos ? 0 : blank + 1;
    if (const auto* known = Find(text.substr(first))) fact = known->value;
  }
  return fact;
}

}  // namespace

std::string_view BatchFactNamed(std::string_view name) {
  const size_t path = name.find_last_of("/.");
  for (const std::string_view part :
       {name, path == std::string_view::npos ? name : name.substr(path + 1)}) {
    if (const auto* known = Find(part)) return known->value;
  }
  return "";
}

void ReadSettings(std::string_view line, ForeignRun& run) {
  constexpr size_t kLongestLine = 1000;
  if (line.size() > kLongestLine) return;
  size_t begin = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (c == ',' || c == '|' || c == ';' || c == '{') begin = at + 1;
    const bool starts =
        std::isdigit(static_cast<unsigned char>(c)) != 0 && at > begin &&
        std::string_view(" \t:=.").find(line[at - 1]) != std::string_view::npos;
    if (!starts) continue;
    const auto number = LeadingNumber(line.substr(at));
    if (!number) continue;
    const std::string_view fact = FactAtEndOf(line.substr(begin, at - begin));
    at += std::max<size_t>(number->text.size(), 1) - 1;
    begin = at + 1;
    if (fact.empty()) continue;
    // One that is told twice otherwise, as after a restart, says nothing.
    const auto [known, is_new] =
        run.settings.try_emplace(std::string(fact), number->value);
    if (!is_new && known->second != number->value) known->second = std::nan("");
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
    if (!is_new(name) || !std::isfinite(value)) continue;
    facts.push_back({std::string(name), {0}, {value}});
  }
  return facts;
}

}  // namespace isoloss::foreign
