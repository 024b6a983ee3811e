#include "isoloss/foreign/batch_names.h"

#include <algorithm>
#include <bitset>
#include <cctype>
#include <map>
#include <vector>

#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

/// Each word of a name has one of these meanings.
enum Meaning : size_t {
  kUnknown,
  kFiller,     ///< says nothing
  kElsewhere,  ///< no training: an evaluation, a benchmark
  kMeasured,   ///< a rate, a clock, a loss: no count
  kPart,       ///< of one device or micro-batch
  kSeen,       ///< so far
  kPer,
  kStep,
  kTotal,  ///< of all devices, or a count
  kCount,
  kMost,
  kTrain,
  kTokens,
  kSamples,
  kImages,
  kSequences,
  kSequence,
  kContext,
  kBlock,
  kLength,
  kSize,
  kBatch,
  kBatches,
  kBatchSize,  ///< in one word
  kGlobalBatch,
  kAccumulation,
  kGradient,
  kDevices,
  kDevice,
  kNode,
  kWorld,
  kParallel,
  kData,
  kReplicas,
  kEpoch,
  kMeanings
};
using Meanings = std::bitset<kMeanings>;

struct Words {
  Meaning meaning;
  std::string_view words;  ///< between blanks
};

constexpr Words kWords[] = {
    {kFiller,
     "of in the a is be will with we for to set and use using used so far "
     "current counter counters input desired calculated config args namespace "
     "starting optimizer degree info trainer encoder progress"},
    {kElsewhere,
     "eval evaluation evaluating val valid validation validating test testing "
     "dev inference infer generation generate gen sampling decode prefetch "
     "prefetching cache tokenizer tokenization benchmark bench profiling "
     "profile capture gemm"},
    {kMeasured,
     "second seconds sec secs s ms min minute hour hours day time throughput "
     "speed rate tps loss acc accuracy ppl perplexity norm lr std entropy "
     "ratio fraction frac percent pct mfu flops tflops memory mem bytes gib gb "
     "vs expert experts dropped vocab visible"},
    {kPart, "micro local"},
    {kSeen, "seen consumed processed trained cum cumulative accumulated"},
    {kPer, "per"},
    {kStep, "step steps iter iters iteration iterations update updates"},
    {kTotal, "global total effective"},
    {kCount, "n num nb number count counts"},
    {kMost, "max maximum"},
    {kTrain, "train training"},
    {kTokens, "token tokens tok toks"},
    {kSamples, "sample samples example examples"},
    {kImages, "image images"},
    {kSequences, "sequences seqs"},
    {kSequence, "sequence seq"},
    {kContext, "context ctx"},
    {kBlock, "block"},
    {kLength, "length len"},
    {kSize, "size"},
    {kBatch, "batch"},
    {kBatches, "batches microbatches"},
    {kBatchSize, "bs bsz"},
    {kGlobalBatch, "gbs"},
    {kAccumulation, "accumulation accum accumulate ga"},
    {kGradient, "gradient grad"},
    {kDevices, "gpus devices ranks processes procs"},
    {kDevice, "gpu device rank process proc"},
    {kNode, "node nodes"},
    {kWorld, "world"},
    {kParallel, "parallel"},
    {kData, "data"},
    {kReplicas, "dp"},
    {kEpoch, "epoch epochs"},
};

std::map<std::string_view, Meaning> EachWord() {
  std::map<std::string_view, Meaning> meanings;
  for (const Words& known : kWords) {
    std::string_view rest = known.words;
    while (!rest.empty()) {
      const std::string_view word = TakeWord(rest);
      if (!word.empty()) meanings.emplace(word, known.meaning);
    }
  }
  return meanings;
}

Meaning MeaningOf(std::string_view word) {
  static const std::map<std::string_view, Meaning> kMeaningOf = EachWord();
  const auto known = kMeaningOf.find(word);
  return known == kMeaningOf.end() ? kUnknown : known->second;
}

/// Adds the word or, if it is made of two known ones ("seqlen"), both of these.
void AddWord(std::string word, std::vector<std::string>& words) {
  const auto is_known = [](std::string_view part) {
    return !part.empty() && MeaningOf(part) != kUnknown;
  };
  if (word.empty()) return;
  if (!is_known(word)) {
    for (const std::string_view end : {"size", "length", "len", "seen"}) {
      if (!word.ends_with(end)) continue;
      const std::string begin = word.substr(0, word.size() - end.size());
      if (!is_known(begin)) continue;
      words.push_back(begin);
      return words.push_back(std::string(end));
    }
    for (const std::string_view begin : {"num", "n"}) {
      if (!word.starts_with(begin)) continue;
      const std::string end = word.substr(begin.size());
      if (!is_known(end)) continue;
      words.push_back("n");
      return words.push_back(end);
    }
  }
  words.push_back(std::move(word));
}

/// Splits a name into small words; a capital after a small letter begins one.
std::vector<std::string> NameWords(std::string_view name) {
  std::vector<std::string> words;
  std::string word;
  bool small = false;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = std::isalnum(byte) != 0;
    if (!letter || (small && std::isupper(byte) != 0)) {
      AddWord(std::move(word), words);
      word.clear();
    }
    small = std::islower(byte) != 0;
    if (letter) word += static_cast<char>(std::tolower(byte));
  }
  AddWord(std::move(word), words);
  return words;
}

/// Returns what the words mean together.
Meanings MeaningsOf(const std::vector<std::string>& words) {
  Meanings all;
  Meaning before = kFiller;
  for (const std::string& word : words) {
    Meaning meaning = MeaningOf(word);
    // llm.c has "batch size B" and "sequence length T".
    const bool symbol =
        word.size() == 1 && (before == kSize || before == kLength);
    if (meaning == kUnknown && symbol) meaning = kFiller;
    if (word == "acc" && before == kGradient) meaning = kAccumulation;
    const bool goes_on =
        before == kPer && (meaning == kFiller || meaning == kTrain ||
                           meaning == kTotal || meaning == kData);
    if (before == kPer && !goes_on && meaning != kStep && meaning != kBatch) {
      meaning = meaning == kNode ? kUnknown : kMeasured;
    }
    all.set(meaning);
    if (!goes_on) before = meaning;
  }
  return all;
}

constexpr std::string_view kLengthFact = "sequence length";

/// A fact is sure if each word of the name belongs to it.
struct Candidate {
  std::string_view fact;
  bool sure = false;
};

Candidate OfUnits(const Meanings& has) {
  const bool of_step = has[kPer] || has[kStep] || has[kBatch];
  // "train_samples" is the size of a data set, too.
  if (has[kTokens]) return {of_step ? "tokens of a step" : "tokens seen", true};
  if (has[kSamples]) {
    return {of_step ? "samples of a step" : "samples seen",
            of_step || has[kSeen] || !has[kTrain]};
  }
  if (has[kImages]) return {of_step ? "images of a step" : "images seen", true};
  if (has[kSequences]) {
    return {of_step      ? "sequences of a step"
            : has[kSeen] ? "sequences seen"
                         : "number of sequences",
            true};
  }
  return {};
}

Candidate OfDevices(const Meanings& has) {
  if (has[kDevices] || has[kWorld]) return {"world size", true};
  if (has[kDevice] && has[kCount]) return {"world size", !has[kUnknown]};
  // Machines differ in their devices, so a count of nodes is not sure.
  return {has[kNode] && has[kCount] ? "number of nodes" : "", false};
}

Candidate CandidateOf(const Meanings& has) {
  if (has[kElsewhere] || has[kMeasured]) return {};
  if (has[kEpoch]) {
    // "epoch" with another word is a number of epochs or their length.
    Meanings rest = has;
    for (const Meaning one : {kEpoch, kTrain, kSeen, kFiller}) rest.reset(one);
    return {rest.any() ? "" : kEpochsSeen, true};
  }
  if ((has[kAccumulation] && !has[kUnknown]) ||
      (has[kBatches] && has[kCount] && has[kPart])) {
    return {"gradient accumulation steps", true};
  }
  if (has[kPart] || (has[kDevice] && has[kBatch])) return {};
  if (has[kDevice] && !has[kCount]) return {};  // the index of a device
  if (has[kParallel] || has[kReplicas]) {
    const bool of_data = has[kData] || has[kReplicas];
    return {of_data ? "data-parallel size" : "", true};
  }
  if (const Candidate units = OfUnits(has); !units.fact.empty()) return units;
  if (has[kGlobalBatch]) return {"global batch size", true};
  if (has[kBatch] || has[kBatchSize]) {
    return {has[kTotal] ? "global batch size" : "batch size",
            has[kTotal] || has[kSize] || has[kBatchSize]};
  }
  const bool long_one = has[kLength] || has[kSize];
  if (has[kContext] || (has[kSequence] && long_one)) {
    return {kLengthFact, true};
  }
  // Without "size", or with an unknown word, "block" may mean a block of
  // scales. "length" may be that of a history.
  if (has[kBlock] && has[kSize] && !has[kUnknown]) {
    return {kLengthFact, true};
  }
  if (has[kLength] && has[kMost] && !has[kUnknown]) {
    return {kLengthFact, false};
  }
  return OfDevices(has);
}

BatchName NameOf(const std::vector<std::string>& words) {
  const Meanings has = MeaningsOf(words);
  const Candidate found = CandidateOf(has);
  if (found.fact.empty()) return {};
  BatchName name{.fact = std::string(found.fact), .sure = found.sure};
  name.grows = name.fact.ends_with(" seen");
  name.sure &= !has[kUnknown] && (name.fact == kLengthFact || !has[kMost]);
  if (name.sure) return name;
  name.fact.clear();
  for (const std::string& word : words) {
    name.fact += name.fact.empty() ? word : " " + word;
  }
  return name;
}

}  // namespace

bool SaysOtherPurpose(std::string_view name) {
  return MeaningsOf(NameWords(name))[kElsewhere];
}

BatchName BatchNamed(std::string_view name) {
  constexpr size_t kLongest = 100;
  if (name.size() > kLongest) return {};
  // Megatron's event files have each name also with "vs samples".
  constexpr std::string_view kOverSteps = " vs steps";
  if (name.ends_with(kOverSteps)) name.remove_suffix(kOverSteps.size());
  BatchName whole = NameOf(NameWords(name));
  const size_t path = name.find_last_of("/.");
  if (whole.sure || path == std::string_view::npos) return whole;
  if (SaysOtherPurpose(name.substr(0, path))) return {};
  BatchName last = NameOf(NameWords(name.substr(path + 1)));
  return last.fact.empty() ? whole : last;
}

}  // namespace isoloss::foreign
