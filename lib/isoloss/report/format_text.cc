#include "isoloss/report/format_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "isoloss/formats/format_range.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::PutNumber;
using document::TextStyle;

using formats::Binade;
using formats::Format;
using formats::FormatRange;

/// One binade of the table is drawn in this number of columns.
constexpr int kBinadeColumns = 32;
/// From this number of binades on, equal ones are left out.
constexpr size_t kMostRows = 24;

/// Returns the exact decimal: no number of a format has as many as 150 digits.
std::string ExactDecimal(double value) {
  return fmt::format("{:.150g}", value);
}

std::string PowerText(double power) {
  return fmt::format("2^{}", std::ilogb(power));
}

double Decibels(double ratio) { return 20 * std::log10(ratio); }

/// Returns lines of at most `width` columns. The first follows `label`, and the
/// rest are indented as far; words that are too long for one line are cut.
std::string Wrapped(std::string label, std::string_view text, size_t width) {
  const size_t room = width - label.size();
  std::string lines;
  while (text.size() > room) {
    size_t end = text.rfind(' ', room);
    if (end == text.npos || end < room / 2) end = room;
    lines += label + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(text[end] == ' ' ? end + 1 : end);
    label.assign(label.size(), ' ');
  }
  return lines + label + std::string(text) + "\n";
}

std::string CodesText(uint32_t first, uint32_t last) {
  if (first == last) return fmt::format("{:#x}", first);
  return fmt::format("{:#x} to {:#x}", first, last);
}

/// Returns "infinity 0x7c, 0xfc; NaN 0x7d to 0x7f, 0xfd to 0xff; +0 and -0".
std::string SpecialsText(const Format& format) {
  if (format.twos_complement) {
    return fmt::format("one zero; {:#x} is {}, which no value gets",
                       format.max_code + 1,
                       formats::Decode(format, format.max_code + 1));
  }
  std::string text;
  const uint32_t sign = 1u << (format.bits() - 1);
  const uint32_t infinity = format.max_code + 1;
  if (format.has_infinity) {
    text += fmt::format("infinity {:#x}, {:#x}; ", infinity, infinity | sign);
  }
  if (format.has_nan()) {
    const uint32_t first = infinity + (format.has_infinity ? 1 : 0);
    text += fmt::format("NaN {}, {}; ", CodesText(first, sign - 1),
                        CodesText(first | sign, 2 * sign - 1));
  }
  return text + "+0 and -0";
}

std::string BitsText(const Format& format) {
  if (format.twos_complement) return "two's complement";
  return fmt::format("1-{}-{}", format.exponent_bits, format.mantissa_bits);
}

/// Draws a column of `count` values, where `most` is the largest count of all
/// columns. It has one of eight heights, by logarithm.
std::string Bar(int64_t count, int64_t most, bool ascii) {
  if (count == 0) return " ";
  const double share = (1 + std::log2(static_cast<double>(count))) /
                       (1 + std::log2(static_cast<double>(most)));
  const int level = std::clamp(static_cast<int>(std::ceil(8 * share)), 1, 8);
  if (ascii) return std::string(1, ".:-=+*#@"[level - 1]);
  // The bars are U+2581 to U+2588.
  return {'\xE2', '\x96', static_cast<char>(0x80 + level)};
}

std::string Bars(const std::vector<int64_t>& counts, int64_t most, bool ascii) {
  std::string text;
  for (const int64_t count : counts) text += Bar(count, most, ascii);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

/// Returns the number of values in each of `columns` equal parts of log2.
std::vector<int64_t> SpreadOver(const Format& format, const Binade& binade,
                                int columns) {
  std::vector<int64_t> counts(static_cast<size_t>(columns));
  for (uint32_t i = 0; i < binade.values; ++i) {
    const double value = std::ldexp(
        static_cast<double>(formats::Decode(format, binade.first_code + i)),
        -binade.exponent);
    ++counts[static_cast<size_t>(columns * std::log2(value))];
  }
  return counts;
}

int64_t Most(const std::vector<int64_t>& counts) {
  return *std::max_element(counts.begin(), counts.end());
}

/// Draws all values on one log axis, and the powers of two below it.
std::string AxisText(const Format& format, const FormatRange& range,
                     const TextStyle& style) {
  const int binades = static_cast<int>(range.binades.size());
  const int columns = std::max(style.width / binades, 1);
  const int together = (binades + style.width - 1) / style.width;
  // If a column holds several binades, the columns at the upper end are whole.
  const int skipped = (together - binades % together) % together;
  std::vector<int64_t> counts;
  for (int i = 0; i < binades; ++i) {
    const std::vector<int64_t> of_binade =
        SpreadOver(format, range.binades[static_cast<size_t>(i)], columns);
    if (i > 0 && (i + skipped) % together != 0) {
      counts.back() += of_binade.front();
    } else {
      counts.insert(counts.end(), of_binade.begin(), of_binade.end());
    }
  }
  std::string labels;
  const int lowest = range.binades.front().exponent;
  const auto label = [&](int exponent) {
    const int group = (exponent - lowest + skipped) / together;
    const size_t column =
        static_cast<size_t>(group) * static_cast<size_t>(columns);
    std::string text = fmt::format("|2^{}", exponent);
    size_t place = column;
    if (place + text.size() > static_cast<size_t>(style.width)) {
      text = fmt::format("2^{}|", exponent);
      place = column + 1 - text.size();
    }
    if (!labels.empty() && place <= labels.size()) return;
    labels.resize(place, ' ');
    labels += text;
  };
  label(lowest);
  if (range.min_normal) label(std::ilogb(*range.min_normal));
  label(0);
  label(range.binades.back().exponent);
  return fmt::format("values on a log axis\n{}\n{}\n",
                     Bars(counts, Most(counts), style.ascii), labels);
}

std::string BinadeLine(const Format& format, const Binade& binade, int64_t most,
                       bool ascii) {
  return fmt::format(
      "2^{:<5}{:>7}  {:<7}  {:>9.4g} %  {}\n", binade.exponent, binade.values,
      PowerText(binade.spacing), 100 * binade.worst_error,
      Bars(SpreadOver(format, binade, kBinadeColumns), most, ascii));
}

/// Returns a line for each binade, upwards; of many that are alike only the
/// first and last.
std::string BinadesText(const Format& format, const FormatRange& range,
                        const TextStyle& style) {
  int64_t most = 1;
  for (const Binade& binade : range.binades) {
    most = std::max(most, Most(SpreadOver(format, binade, kBinadeColumns)));
  }
  const auto like = [&](size_t i, size_t j) {
    return range.binades[i].values == range.binades[j].values;
  };
  std::string text =
      fmt::format("{:<7}{:>7}  {:<7}  {:>11}  {}\n", "from", "values",
                  "spacing", "worst error", "values, on a log axis");
  const size_t count = range.binades.size();
  for (size_t i = 0; i < count; ++i) {
    size_t last = i;
    while (last + 1 < count && like(last + 1, i)) ++last;
    text += BinadeLine(format, range.binades[i], most, style.ascii);
    if (count <= kMostRows || last - i < 3) continue;
    text += fmt::format("  {} more, whose spacing doubles each time\n",
                        last - i - 1);
    text += BinadeLine(format, range.binades[last], most, style.ascii);
    i = last;
  }
  return text;
}

}  // namespace

std::string RenderFormats(std::span<const Format* const> all,
                          const TextStyle& style) {
  std::string text =
      fmt::format("{:<6}{:>4}  {:<17}{:<15}{:<13}{:<10}{}\n", "name", "bits",
                  "s-e-m", "largest", "least normal", "least", "specials");
  for (const Format* format : all) {
    const FormatRange range = formats::RangeOf(*format);
    text +=
        fmt::format("{:<6}{:>4}  {:<17}{:<15.8g}{:<13}{:<10}{}\n", format->name,
                    format->bits(), BitsText(*format), range.max,
                    range.min_normal ? PowerText(*range.min_normal) : "-",
                    PowerText(range.min_subnormal),
                    format->has_infinity ? "inf, NaN"
                    : format->has_nan()  ? "NaN"
                                         : "none");
    text += Wrapped(std::string(12, ' '), format->source,
                    static_cast<size_t>(style.width));
  }
  return text;
}

std::string RenderFormat(const Format& format, const TextStyle& style) {
  const auto width = static_cast<size_t>(style.width);
  const FormatRange range = formats::RangeOf(format);
  std::string text = fmt::format(
      "{}: {} bits, {}, bias {}\n", format.name, format.bits(),
      format.twos_complement
          ? BitsText(format)
          : fmt::format("sign-exponent-mantissa {}", BitsText(format)),
      format.bias);
  text += Wrapped("", format.source, width) + "\n";
  const auto line = [&](const char* name, const std::string& what) {
    text += Wrapped(fmt::format("{:<17}", name), what, width);
  };
  const auto number = [&](const char* name, double value) {
    line(name, fmt::format("{:a} = {}", value, ExactDecimal(value)));
  };
  number("largest", range.max);
  if (range.min_normal) number("least normal", *range.min_normal);
  number(range.min_normal ? "least subnormal" : "least", range.min_subnormal);
  line("specials", SpecialsText(format));
  line("finite", fmt::format("{} of {} codes, {} values", range.finite,
                             range.codes, range.values));
  const auto reach = [&](const char* name, double least) {
    line(name,
         fmt::format("{:.1f} dB, {:.1f} binades", Decibels(range.max / least),
                     std::log2(range.max / least)));
  };
  reach("dynamic range", range.min_subnormal);
  if (range.min_normal) reach("of normal ones", *range.min_normal);
  return text + "\n" + AxisText(format, range, style) + "\n" +
         BinadesText(format, range, style);
}

Json FormatJson(const Format& format) {
  const FormatRange range = formats::RangeOf(format);
  Json json{{"name", format.name},
            {"bits", format.bits()},
            {"exponent_bits", format.exponent_bits},
            {"mantissa_bits", format.mantissa_bits},
            {"bias", format.bias},
            {"twos_complement", format.twos_complement}};
  PutNumber(json, "max", range.max);
  PutNumber(json, "min_normal", range.min_normal);
  PutNumber(json, "min_subnormal", range.min_subnormal);
  json["specials"] = SpecialsText(format);
  json["finite_codes"] = range.finite;
  json["values"] = range.values;
  PutNumber(json, "dynamic_range_db",
            Decibels(range.max / range.min_subnormal));
  json["source"] = format.source;
  json["binades"] = Json::array();
  for (const Binade& binade : range.binades) {
    json["binades"].push_back({{"exponent", binade.exponent},
                               {"values", binade.values},
                               {"spacing", binade.spacing},
                               {"worst_relative_error", binade.worst_error}});
  }
  return json;
}

}  // namespace isoloss::report
