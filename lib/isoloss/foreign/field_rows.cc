#include "isoloss/foreign/field_rows.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "isoloss/foreign/foreign_run.h"

namespace isoloss::foreign {
namespace {

/// These words count steps, the more usual ones first. The two last ones count
/// updates of the whole run; beside another word they are fields.
constexpr std::string_view kStepWords[] = {
    "step",  "steps",  "iteration", "iterations",  "iter",       "iters",
    "batch", "update", "updates",   "global_step", "num_updates"};

/// A step behind one of these words is not that of the line's numbers.
constexpr std::string_view kWordsOfOtherSteps[] = {
    "per",    "each", "every", "of",     "time", "last",
    "warmup", "max",  "num",   "next",   "save", "log",
    "best",   "from", "total", "resume", "grad", "accumulation"};

/// Returns the words of a name, made small, without a path and "(train)".
std::vector<std::string> CounterWords(std::string_view name) {
  if (name.ends_with(')')) name = name.substr(0, name.rfind('('));
  std::vector<std::string> words;
  while (!Trimmed(name).empty()) {
    std::string_view word = TakeWord(name);
    const size_t path = word.rfind('/');
    words.push_back(
        SmallLetters(word.substr(path == word.npos ? 0 : path + 1)));
  }
  return words;
}

/// Returns the place of a step's name in kStepWords; its size if it is none.
size_t StepPlaceOf(std::string_view name) {
  const std::vector<std::string> words = CounterWords(name);
  if (words.empty()) return std::size(kStepWords);
  const bool other =
      words.size() > 1 &&
      std::ranges::count(kWordsOfOtherSteps, words[words.size() - 2]) != 0;
  if (other) return std::size(kStepWords);
  size_t place = 0;
  while (place < std::size(kStepWords) && words.back() != kStepWords[place] &&
         !(kStepWords[place].find('_') != std::string_view::npos &&
           words.back().ends_with(kStepWords[place]))) {
    ++place;
  }
  return place;
}

bool IsEpoch(std::string_view name) {
  const std::vector<std::string> words = CounterWords(name);
  return !words.empty() && (words.back() == "epoch" || words.back() == "ep");
}

bool NamesLoss(std::string_view name) {
  const Quantity quantity = FindName(name).quantity;
  return quantity == Quantity::kLoss || quantity == Quantity::kEvalLoss;
}

/// Returns whether the number is a share of steps ("Steps: 10%"), or one that a
/// launcher writes before each line ("Worker pid=7").
bool IsNoField(const LineItem& item) {
  const std::vector<std::string> words = CounterWords(item.name);
  if (words.empty() || words.back() == "pid" || words.back() == "rank") {
    return true;
  }
  return item.percent &&
         (IsEpoch(item.name) || StepPlaceOf(item.name) < std::size(kStepWords));
}

/// Words of a remark on where a loss is from: "on the held-out set".
constexpr std::string_view kWordsBesidePhases[] = {
    "on",   "the",     "for",  "in",   "of",  "from", "set",
    "data", "dataset", "loss", "held", "out", "hold", "split"};

/// Returns the last clause. One with a value, as "val: n/a", is none.
std::string_view LastClauseOf(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t:;,|-=[](){}<>'\"*");
  if (end == text.npos) return "";
  text = text.substr(0, end + 1);
  const size_t edge = text.find_last_of("|,;");
  if (edge != text.npos) text.remove_prefix(edge + 1);
  const size_t sign = text.find_first_of(":=");
  const bool value =
      sign != text.npos && sign > 0 && NamesEvaluation(text.substr(0, sign));
  return value ? "" : text;
}

/// A length is the number of steps of the epoch that is its key.
using Lengths = std::map<int64_t, int64_t>;

/// Returns the lengths that totals tell; empty if a row has none.
Lengths ToldLengths(const std::vector<FieldRow>& rows) {
  Lengths lengths;
  for (const FieldRow& row : rows) {
    if (row.step < 0) continue;
    if (row.total <= 0) return {};
    lengths[row.epoch] = row.total;
  }
  return lengths;
}

/// Returns the lengths that are seen where each step has a row, and all epochs
/// but the last have equally many; else it is empty.
Lengths SeenLengths(const std::vector<FieldRow>& rows) {
  std::map<int64_t, std::pair<int64_t, int64_t>> ends;  // first and last step
  for (const FieldRow& row : rows) {
    if (row.step < 0) continue;
    const auto [found, is_new] =
        ends.try_emplace(row.epoch, row.step, row.step);
    int64_t& last = found->second.second;
    if (!is_new && row.step != last && row.step != last + 1) return {};
    last = row.step;
  }
  Lengths lengths;
  for (const auto& [epoch, end] : ends) {
    lengths[epoch] = end.second - end.first + 1;
    const bool whole = end.first == ends.begin()->second.first &&
                       (epoch == ends.rbegin()->first ||
                        lengths[epoch] == lengths.begin()->second);
    if (!whole || end.first > 1) return {};
  }
  return lengths;
}

/// Returns whether steps begin again where the number of the epoch rises.
bool BeginsAgain(const std::vector<FieldRow>& rows) {
  const FieldRow* last = nullptr;
  for (const FieldRow& row : rows) {
    if (row.step < 0) continue;
    if (last != nullptr && last->epoch >= 0 && row.epoch > last->epoch &&
        row.step <= last->step) {
      return true;
    }
    last = &row;
  }
  return false;
}

/// Returns the steps before each epoch; empty if they are not known.
Lengths StepsBefore(const Lengths& lengths) {
  // A log that begins in a later epoch does not tell the epochs before it.
  if (lengths.empty() || lengths.begin()->first < 0 ||
      lengths.begin()->first > 1) {
    return {};
  }
  Lengths before;
  int64_t sum = 0;
  auto last = lengths.begin();
  for (auto one = lengths.begin(); one != lengths.end(); last = one++) {
    const int64_t epochs = one->first - last->first;
    constexpr int64_t kMost = 1'000'000;
    if (epochs > kMost || last->second > kMostWhole / kMost) return {};
    sum += epochs * last->second;
    if (sum > kMostWhole) return {};
    before[one->first] = sum;
  }
  return before;
}

}  // namespace

RowParts PartsOf(const std::vector<LineItem>& items) {
  RowParts parts;
  size_t best = std::size(kStepWords);
  for (const LineItem& item : items) {
    if (item.name.empty()) {
      if (item.is_count && item.has_total && parts.bar == nullptr) {
        parts.bar = &item;
      }
      continue;
    }
    const size_t place =
        item.is_count ? StepPlaceOf(item.name) : std::size(kStepWords);
    if (place < best) {
      if (parts.step != nullptr) parts.fields.push_back(parts.step);
      parts.step = &item;
      parts.step_word = kStepWords[place];
      best = place;
    } else if (item.is_count && parts.epoch == nullptr && IsEpoch(item.name)) {
      parts.epoch = &item;
    } else if (!item.has_total && !IsNoField(item)) {
      parts.fields.push_back(&item);
      parts.has_loss |= NamesLoss(item.name);
    }
  }
  // timm's epoch has another name: "Train: 0 [  50/1251 (  4%)]".
  if (parts.epoch == nullptr && parts.bar != nullptr &&
      items.front().is_count && SmallLetters(items.front().name) == "train") {
    parts.epoch = &items.front();
    std::erase(parts.fields, parts.epoch);
  }
  return parts;
}

LinePhase PhaseBefore(const LineItem& item) {
  const std::string_view clause = LastClauseOf(item.gap);
  if (NamesEvaluation(clause)) return LinePhase::kEvaluation;
  const bool training = std::ranges::any_of(
      WordsOf(clause),
      [](const Word& word) { return word.letters.starts_with("train"); });
  return training ? LinePhase::kTraining : LinePhase::kNotTold;
}

bool EndsInEvaluation(std::string_view rest) {
  const std::string_view clause = LastClauseOf(rest);
  return NamesEvaluation(clause) &&
         std::ranges::all_of(WordsOf(clause), [](const Word& word) {
           return IsEvaluationWord(word.letters) ||
                  std::ranges::count(kWordsBesidePhases, word.letters) != 0;
         });
}

int64_t WholeOf(const LineItem& item) {
  return static_cast<int64_t>(item.number->value);
}

bool CountsEvaluation(const RowParts& parts) {
  if (parts.step == nullptr) return true;
  const std::vector<std::string> words = CounterWords(parts.step->name);
  return words.back() == "batch" || parts.step->name.ends_with(')') ||
         (words.size() > 1 && words[words.size() - 2] == "eval");
}

int64_t AddEpochs(std::vector<FieldRow>& rows) {
  Lengths before;
  if (BeginsAgain(rows)) {
    Lengths lengths = ToldLengths(rows);
    if (lengths.empty()) lengths = SeenLengths(rows);
    before = StepsBefore(lengths);
    if (before.empty()) return 0;
  }
  int64_t planned = 0;
  for (FieldRow& row : rows) {
    if (row.step < 0) continue;
    const auto steps = before.find(row.epoch);
    const int64_t offset = steps == before.end() ? 0 : steps->second;
    row.step = std::min(row.step + offset, kMostWhole);
    const bool all = !before.empty() && row.epochs > 0 &&
                     row.total <= kMostWhole / std::max<int64_t>(row.epochs, 1);
    planned = std::max({planned, row.total > 0 ? offset + row.total : 0,
                        all ? row.epochs * row.total : 0});
  }
  return planned;
}

}  // namespace isoloss::foreign
