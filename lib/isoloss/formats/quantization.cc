#include "isoloss/formats/quantization.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::formats {
namespace {

template <typename Value, size_t kCount>
std::string_view NameOf(const Named<Value> (&table)[kCount], Value value) {
  const auto entry = std::ranges::find(table, value, &Named<Value>::value);
  ISOLOSS_ASSERT(entry != std::end(table));
  return entry->name;
}

std::string_view ScalingName(const Quantization& q) {
  return NameOf(kScalingNames, q.scaling);
}

/// Sets `value` to the entry of that name; returns false if there is none.
template <typename Value, size_t kCount>
bool Take(const Named<Value> (&table)[kCount], std::string_view name,
          Value& value) {
  const auto entry = std::ranges::find(table, name, &Named<Value>::name);
  if (entry == std::end(table)) return false;
  value = entry->value;
  return true;
}

bool IsRuleOfE8m0(ScaleRule rule) {
  return rule == ScaleRule::kFloor || rule == ScaleRule::kCeil ||
         rule == ScaleRule::kEven || rule == ScaleRule::kRceil;
}

bool IsWholeTensor(const Cell& cell) {
  return cell.rows == 0 && cell.cols == 0;
}

std::string WrongScale(const Quantization& q) {
  const bool none = q.scale_format == ScaleFormat::kNone;
  const bool e8m0 = q.scale_format == ScaleFormat::kE8m0;
  if (!none && IsRuleOfE8m0(q.scale_rule) != e8m0) {
    return fmt::format(
        "has scales in {} by the rule {}, but floor, ceil, even and rceil are "
        "the rules of e8m0, te, deepgemm and torchao of the other formats",
        ScaleFormatName(q.scale_format), ScaleRuleName(q.scale_rule));
  }
  if (q.scale_format == ScaleFormat::kE4m3 &&
      q.scale_rule == ScaleRule::kDeepgemm) {
    return "has scales in e4m3 by the rule deepgemm, which has none";
  }
  if (q.element->bits() > 8 && !none) {
    return fmt::format(
        "has elements in {} and a scale, but only formats of 8 bits or fewer "
        "have one: give scale_format = \"none\"",
        q.element->name);
  }
  if (q.scales_tensor() && q.scale_format != ScaleFormat::kE4m3) {
    return fmt::format("has scaling {} with scales in {}, but it needs e4m3",
                       ScalingName(q), ScaleFormatName(q.scale_format));
  }
  if (none && q.scaling != Scaling::kCurrent) {
    return fmt::format("has no scale, but scaling {}", ScalingName(q));
  }
  if (none && (q.scale_rule != Quantization().scale_rule || q.cell != Cell{})) {
    return "has no scale, but a scale rule or blocks that share one";
  }
  return "";
}

std::string WrongHistory(const Quantization& q) {
  if (q.reads_history() != (q.history > 0)) {
    return fmt::format(
        "has a history of {} steps and scaling {}, but delayed scaling needs a "
        "history, and nothing else has one",
        q.history, ScalingName(q));
  }
  if (q.reads_history() && !IsWholeTensor(q.cell)) {
    return fmt::format(
        "has scaling {} for cells of {} x {}, but a history is one of a whole "
        "tensor: give 0 x 0",
        ScalingName(q), q.cell.rows, q.cell.cols);
  }
  return "";
}

std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  constexpr std::string_view kDot = "·";
  while (!name.empty()) {
    const bool dot = name.starts_with(kDot);
    if (dot || name.front() == '.') {
      words.emplace_back();
    } else {
      words.back() += name.front();
    }
    name.remove_prefix(dot ? kDot.size() : 1);
  }
  return words;
}

/// Returns the number after `prefix` in a word; 0 if the word does not begin
/// with it, or if no number of up to five digits follows.
int NumberAfter(std::string_view prefix, std::string_view word) {
  if (!word.starts_with(prefix)) return 0;
  word.remove_prefix(prefix.size());
  int number = 0;
  const auto [end, error] =
      std::from_chars(word.data(), word.data() + word.size(), number);
  const bool whole = error == std::errc() && end == word.data() + word.size();
  return whole && word.size() <= 5 ? number : 0;
}

bool TakeCell(std::string_view word, Quantization& q) {
  const char* end = word.data() + word.size();
  Cell cell;
  const auto rows = std::from_chars(word.data(), end, cell.rows);
  if (rows.ec != std::errc() || rows.ptr == end || *rows.ptr != 'x') {
    return false;
  }
  const auto cols = std::from_chars(rows.ptr + 1, end, cell.cols);
  if (cols.ec != std::errc() || cols.ptr != end) return false;
  q.cell = cell;
  return true;
}

/// Applies one word of a description, at whatever place it is.
bool TakeWord(std::string_view word, Quantization& q) {
  if (Take(kScaleFormatNames, word, q.scale_format) || TakeCell(word, q) ||
      Take(kScalingNames, word, q.scaling) ||
      Take(kTransformNames, word, q.transform) ||
      Take(kNonFinitePolicyNames, word, q.non_finite)) {
    return true;
  }
  if (const int history = NumberAfter("history", word); history > 0) {
    q.history = history;
    return true;
  }
  for (const auto& [name, rounding] : kRoundingModeNames) {
    const int bits = NumberAfter(name, word);
    if (word != name && bits == 0) continue;
    q.rounding = rounding;
    q.random_bits = bits;
    return true;
  }
  return false;
}

}  // namespace

std::string_view ScaleRuleName(ScaleRule rule) {
  return NameOf(kScaleRuleNames, rule);
}

std::string_view ScaleFormatName(ScaleFormat format) {
  return NameOf(kScaleFormatNames, format);
}

std::string_view TransformName(Transform transform) {
  return NameOf(kTransformNames, transform);
}

std::string_view NonFinitePolicyName(NonFinitePolicy policy) {
  return NameOf(kNonFinitePolicyNames, policy);
}

ScaleRule ScaleRuleByName(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Named<ScaleRule>& rule : kScaleRuleNames) {
    if (rule.name == name) return rule.value;
    names.push_back(rule.name);
  }
  ThrowError(ErrorKind::kConfig,
             "scale rule: `{}` was given, but it must be one of {}. Use one of "
             "these names.",
             name, fmt::join(names, ", "));
}

std::string WrongQuantization(const Quantization& q) {
  if (std::max(q.cell.rows, q.cell.cols) > kMaxCell ||
      q.history > kMaxHistory) {
    return fmt::format(
        "has cells of {} x {} and a history of {}, but at most {} rows and "
        "columns and {} steps are possible",
        q.cell.rows, q.cell.cols, q.history, kMaxCell, kMaxHistory);
  }
  std::string wrong = WrongScale(q);
  if (wrong.empty()) wrong = WrongHistory(q);
  if (!wrong.empty()) return wrong;
  const bool bits = q.random_bits >= 1 && q.random_bits <= 16;
  if (q.is_stochastic() ? !bits : q.random_bits != 0) {
    return fmt::format(
        "has {} random bits and rounding {}, but stochastic rounding needs 1 "
        "to 16 of them, and nothing else has any",
        q.random_bits, NameOf(kRoundingModeNames, q.rounding));
  }
  return "";
}

std::string QuantizationName(const Quantization& q) {
  std::string text(q.element->name);
  const auto add = [&text](std::string_view part) {
    text += "·";
    text += part;
  };
  if (q.scale_format == ScaleFormat::kNone) {
    add("none");
  } else {
    add(ScaleRuleName(q.scale_rule));
    if (q.scale_format != ScaleFormat::kE8m0)
      add(ScaleFormatName(q.scale_format));
    if (q.cell != Cell{}) add(fmt::format("{}x{}", q.cell.rows, q.cell.cols));
  }
  if (q.scaling != Scaling::kCurrent) add(ScalingName(q));
  if (q.history > 0) add(fmt::format("history{}", q.history));
  if (q.rounding != RoundingMode::kNearestEven) {
    const std::string_view name = NameOf(kRoundingModeNames, q.rounding);
    add(q.random_bits > 0 ? fmt::format("{}{}", name, q.random_bits)
                          : std::string(name));
  }
  if (q.transforms()) add(TransformName(q.transform));
  if (q.non_finite != NonFinitePolicy::kBlockNan) {
    add(NonFinitePolicyName(q.non_finite));
  }
  return text;
}

Quantization QuantizationByName(std::string_view name) {
  const std::vector<std::string> words =
      WordsOf(name == "nvfp4" ? "e2m1.te.e4m3.1x16.two_level" : name);
  Quantization q;
  q.element = &FormatByName(words.front());
  size_t known = 1;
  if (words.size() > 1 && words[1] == ScaleFormatName(ScaleFormat::kNone)) {
    q.scale_format = ScaleFormat::kNone;
    ++known;
  } else if (words.size() > 1) {
    q.scale_rule = ScaleRuleByName(words[1]);
    ++known;
  }
  while (known < words.size() && TakeWord(words[known], q)) ++known;
  // The description must be written as QuantizationName writes it: each word
  // has its place, and defaults are left out.
  std::string wrong = WrongQuantization(q);
  const std::string written = QuantizationName(q);
  if (wrong.empty() && (known < words.size() || WordsOf(written) != words)) {
    wrong = fmt::format("is read as `{}`", written);
  }
  if (wrong.empty()) return q;
  ThrowError(ErrorKind::kConfig,
             "quantisation `{}`: it {}. Write element.rule or element.none, "
             "then what is not as in MX: scale format, cell, scaling, history, "
             "rounding, transform, non-finite policy. For instance "
             "e4m3.rceil or e2m1.te.e4m3.1x16.two_level.",
             name, wrong);
}

}  // namespace isoloss::formats
