// Lines of named numbers, as many trainers print them: a step, and fields
// between commas, bars or dashes, or on indented lines below it.
//   ... completed step: 0, seconds: 0.3, total_weights: 4096, loss: 5.000
//   ... 1.00s/it]step:1 - train/loss:4.97 - train/lr(1e-3):0.2
//   ... [step=1/1000]
//       train/CrossEntropyLoss=4.97
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "isoloss/foreign/line_format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

/// Longer lines hold something else, such as a configuration.
constexpr size_t kLongestLine = 4000;
/// More than a trainer logs; other text has no end of names.
constexpr size_t kMostNames = 1000;
/// MaxText's name of the tokens that the loss of a step is the mean of.
constexpr std::string_view kTokensOfStep = "total_weights";

struct NamedField {
  std::string_view name;  ///< with the words before it: "completed step"
  std::string_view text;  ///< what follows the colon or equals sign
  std::optional<Written> number;
};

std::string_view LastWord(std::string_view text) {
  const size_t blank = text.find_last_of(" \t");
  return blank == std::string_view::npos ? text : text.substr(blank + 1);
}

/// Of "a: 1, b=2 - c:3". A name begins with a letter, which a time does not.
std::vector<NamedField> FieldsOf(std::string_view line) {
  std::vector<NamedField> fields;
  size_t begin = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    const bool dash = c == '-' && at > 0 && line[at - 1] == ' ';
    if (dash || std::string_view(",;|[]{}").find(c) != std::string_view::npos) {
      begin = at + 1;
    }
    if (c != ':' && c != '=') continue;
    const std::string_view name = Trimmed(line.substr(begin, at - begin));
    const std::string_view word = LastWord(name);
    if (word.empty() || std::isalpha(static_cast<unsigned char>(word[0])) == 0)
      continue;
    const std::string_view text = Trimmed(line.substr(at + 1));
    const auto number = LeadingNumber(text);
    fields.push_back({name, text, number});
    begin = at + 1;
    if (!number) continue;
    begin = static_cast<size_t>(number->text.data() - line.data()) +
            number->text.size();
    at = begin - 1;
  }
  return fields;
}

bool IsStep(const NamedField& field) {
  constexpr std::string_view kNames[] = {"step", "global_step", "train_step",
                                         "iteration", "iter"};
  return std::ranges::count(kNames, LastWord(field.name)) != 0 &&
         field.number && field.number->value >= 0 &&
         field.number->value <= static_cast<double>(kMostWhole) &&
         field.number->value == std::floor(field.number->value);
}

/// Whether the words of a step say that no training is at work: "eval step".
bool IsEvaluation(std::string_view words) {
  constexpr std::string_view kBegins[] = {"eval", "valid", "test",
                                          "Eval", "Valid", "Test"};
  while (!words.empty()) {
    const std::string_view word = TakeWord(words);
    if (std::ranges::any_of(kBegins, [word](std::string_view begin) {
          return word.starts_with(begin);
        })) {
      return true;
    }
  }
  return false;
}

/// As many of the last words as make up a known name, else the last one.
std::string_view NameOf(std::string_view words) {
  while (FindName(words).quantity == Quantity::kOther) {
    const size_t blank = words.find_first_of(" \t");
    if (blank == std::string_view::npos) break;
    words = Trimmed(words.substr(blank));
  }
  return words;
}

class NamedFieldsReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    if (line.size() > kLongestLine) return false;
    const std::vector<NamedField> fields = FieldsOf(line);
    const bool indented = line.starts_with(' ') || line.starts_with('\t');
    if (indented && step_ && fields.size() == 1 && !IsStep(fields[0])) {
      Keep(fields[0]);
      return true;
    }
    step_.reset();
    const auto step = std::ranges::find_if(fields, IsStep);
    if (step == fields.end()) return false;
    step_ = static_cast<int64_t>(step->number->value);
    evaluates_ = IsEvaluation(step->name);
    TakePlanned(*step);
    for (auto field = fields.begin(); field != fields.end(); ++field) {
      // A logger's own fields stand before the step: a source line, a rank.
      const bool known =
          FindName(NameOf(field->name)).quantity != Quantity::kOther;
      if (field > step || known) Keep(*field);
    }
    return true;
  }

  void Finish() override {
    if (run().Find(kTokensOfStep) == nullptr) return;
    LeaveOutLossesOfNothing();
    AddTokensUp();
  }

 private:
  /// "1/1000".
  void TakePlanned(const NamedField& step) {
    const std::string_view rest = step.text.substr(step.number->text.size());
    if (!rest.starts_with('/')) return;
    const auto planned = LeadingNumber(rest.substr(1));
    if (planned) run().steps_planned = CountOf(*planned);
  }

  void Keep(const NamedField& field) {
    std::string name(NameOf(field.name));
    if (!field.number && FindName(name).quantity != Quantity::kLoss) return;
    std::string_view rest = field.text;
    std::string text(field.number ? field.number->text : TakeWord(rest));
    // A rate in units that its name tells: "train/lr(1e-3)".
    const size_t unit = name.find("(1e");
    if (unit != std::string::npos && name.ends_with(')') &&
        text.find_first_of("eE") == std::string::npos) {
      const size_t exponent = unit + 2;
      text += name.substr(exponent, name.size() - 1 - exponent);
      name.resize(unit);
    }
    if (evaluates_) name.insert(0, "validation ");
    if (run().series.size() < kMostNames || run().Find(name) != nullptr) {
      run().Of(name).AddWritten(*step_, LeadingNumber(text), text);
    }
  }

  void LeaveOutLossesOfNothing() {
    const Series* known = run().Main(Quantity::kLoss);
    if (known == nullptr) return;
    const Series& tokens = *run().Find(kTokensOfStep);
    std::set<int64_t> empty;
    for (size_t i = 0; i < tokens.step.size(); ++i) {
      if (tokens.value[i] == 0) empty.insert(tokens.step[i]);
    }
    Series& loss = run().Of(known->name);
    std::vector<int64_t> steps;
    std::vector<double> values;
    for (size_t i = 0; i < loss.step.size(); ++i) {
      if (empty.contains(loss.step[i])) continue;
      steps.push_back(loss.step[i]);
      values.push_back(loss.value[i]);
    }
    const size_t left_out = loss.step.size() - steps.size();
    if (left_out == 0) return;
    loss.step = std::move(steps);
    loss.value = std::move(values);
    run().notes.push_back(fmt::format(
        "{}: {} values are left out, the first of step {}, for {} is 0 there, "
        "and a mean over no token is no loss.",
        loss.name, left_out, *empty.begin(), kTokensOfStep));
  }

  /// The tokens since the start, where every step from the first one is there.
  void AddTokensUp() {
    const Series tokens = *run().Find(kTokensOfStep);
    if (tokens.step.front() > 1) return;
    for (size_t i = 1; i < tokens.step.size(); ++i) {
      if (tokens.step[i] != tokens.step[i - 1] + 1) return;
    }
    Series& seen = run().Of("tokens_seen");
    if (!seen.step.empty()) return;
    double sum = 0;
    for (size_t i = 0; i < tokens.step.size(); ++i) {
      sum += tokens.value[i];
      seen.Add(tokens.step[i], sum);
    }
  }

  std::optional<int64_t> step_;  ///< of the indented lines that follow
  bool evaluates_ = false;
};

}  // namespace

extern const LineFormat kLineFormat_named_fields = {
    "named_fields", "lines of a step and named numbers",
    [] {
      return std::unique_ptr<LineReader>(std::make_unique<NamedFieldsReader>());
    },
    /*is_generic=*/true};

}  // namespace isoloss::foreign
