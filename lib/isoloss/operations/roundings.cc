#include "isoloss/operations/roundings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "isoloss/base/portable_math.h"
#include "isoloss/formats/format.h"

namespace isoloss::operations {
namespace {

constexpr double kLevel = 1e-6;

uint32_t MagnitudeOf(const formats::Format& format, uint32_t code) {
  return code & ((uint32_t{1} << (format.bits() - 1)) - 1);
}

Rounding RoundingOf(const formats::Format& format, uint8_t code, float lower,
                    float scaled) {
  const auto low = static_cast<double>(std::fabs(lower));
  const auto size = static_cast<double>(std::fabs(scaled));
  const uint32_t magnitude = MagnitudeOf(
      format, formats::Encode(format, lower, formats::Overflow::kSaturate));
  const auto high = static_cast<double>(formats::Decode(format, magnitude + 1));
  if (!(size > low) || !std::isfinite(high) || !(high > low)) return {};
  return {.remainder = std::min((size - low) / (high - low), 1.0),
          .up = IsRoundedUp(format, code, lower, scaled),
          .negative = std::signbit(scaled)};
}

std::vector<RoundingGroup> GroupsOf(const std::vector<const Side*>& sides,
                                    const Codes& codes) {
  std::vector<RoundingGroup> groups;
  size_t first = 0;
  for (const Side* side : sides) {
    const auto tensor = Quantized(*side);
    RoundingGroup& group = groups.emplace_back();
    const size_t cols = side->values.cols();
    group.cols = cols;
    for (size_t r = 0; tensor && r < side->values.rows(); ++r) {
      for (size_t c = 0; c < cols; ++c) {
        const size_t i = side->down ? c : r;
        const size_t k = side->down ? r : c;
        group.all.push_back(
            RoundingOf(*side->quantization->element,
                       codes.values[first + r * cols + c], tensor->codes(i, k),
                       tensor->elements(i, k) * tensor->ScaleAt(i, k).encode));
        group.all.back().slack = std::ldexp(1.0, -side->random_bits);
      }
    }
    first += side->values.rows() * cols;
  }
  return groups;
}

/// Sums what the share of roundings upwards is compared with.
struct Share {
  double count = 0.0;
  double up = 0.0;
  double remainders = 0.0;
  double variance = 0.0;
  double slack = 0.0;

  void Add(const Rounding& rounding) {
    const double p = rounding.remainder;
    count += 1.0;
    up += rounding.up ? 1.0 : 0.0;
    remainders += p;
    variance += p * (1.0 - p);
    slack += rounding.slack;
  }
  bool Fits(double questions) const {
    const double log = portable::Log(2.0 * questions / kLevel);
    const double third = log / 3.0;
    const double t =
        third + std::sqrt(third * third + 2.0 * log * (variance + slack));
    return std::fabs(up - remainders) <= t + slack;
  }
};

/// Asks the questions about shares.
class Shares {
 public:
  void Add(const Rounding& rounding, size_t row, size_t col) {
    all_.Add(rounding);
    signs_[rounding.negative ? 1 : 0].Add(rounding);
    const auto eighth = static_cast<size_t>(rounding.remainder * kEighths);
    eighths_[std::min(eighth, kEighths - 1)].Add(rounding);
    for (size_t m = 0; m < kModuli.size(); ++m) {
      rows_[m][row % kModuli[m]].Add(rounding);
      cols_[m][col % kModuli[m]].Add(rounding);
    }
  }

  /// Returns the first share that does not fit, as "... were rounded up".
  std::string Wrong() const {
    const auto text = [&](const Share& share, const std::string& of) {
      return share.Fits(kQuestions)
                 ? ""
                 : fmt::format(
                       "{:.0f} of {:.0f} elements{} were rounded up, "
                       "but their remainders ask for {:.1f}",
                       share.up, share.count, of, share.remainders);
    };
    std::string wrong = text(all_, "");
    const auto ask = [&](const Share& share, const std::string& of) {
      if (wrong.empty()) wrong = text(share, of);
    };
    ask(signs_[0], " above zero");
    ask(signs_[1], " below zero");
    for (size_t i = 0; i < kEighths; ++i) {
      ask(eighths_[i],
          fmt::format(" with remainders from {}/8 to {}/8", i, i + 1));
    }
    for (size_t m = 0; m < kModuli.size(); ++m) {
      for (size_t i = 0; i < kModuli[m]; ++i) {
        ask(rows_[m][i], fmt::format(" in row {} of each {}", i, kModuli[m]));
        ask(cols_[m][i],
            fmt::format(" in column {} of each {}", i, kModuli[m]));
      }
    }
    return wrong;
  }

 private:
  static constexpr size_t kEighths = 8;
  static constexpr std::array<size_t, 4> kModuli = {2, 4, 8, 16};
  static constexpr double kQuestions = 1 + 2 + 8 + 2 * (2 + 4 + 8 + 16);

  Share all_;
  std::array<Share, 2> signs_;
  std::array<Share, kEighths> eighths_;
  std::array<std::array<Share, 16>, kModuli.size()> rows_;
  std::array<std::array<Share, 16>, kModuli.size()> cols_;
};

/// Finds a remainder from which on nearly all elements were rounded up, and
/// below which nearly none. Elements near it do not count.
class Thresholds {
 public:
  void Add(const Rounding& rounding) {
    const auto bin = static_cast<size_t>(rounding.remainder * kBins);
    ++(rounding.up ? up_ : down_)[std::min(bin, kBins - 1)];
  }

  /// Returns the least and the largest of them.
  std::optional<std::pair<double, double>> Find(int64_t elements) const {
    constexpr int64_t kFew = 100;  // one of this many
    int64_t downs = 0;             // from the threshold on
    for (const int64_t count : down_) downs += count;
    int64_t ups = 0;  // below it
    std::optional<std::pair<double, double>> best;
    int64_t least = elements / kFew + 1;
    for (size_t i = 0; i <= kBins; ++i) {
      const int64_t at = i < kBins ? down_[i] : 0;
      const double threshold = static_cast<double>(i) / kBins;
      if (ups + downs - at < least) {
        least = ups + downs - at;
        best = {threshold, threshold};
      } else if (best && ups + downs - at == least) {
        best->second = threshold;
      }
      if (i == kBins) break;
      ups += up_[i];
      downs -= at;
    }
    return best;
  }

 private:
  static constexpr size_t kBins = 256;
  std::array<int64_t, kBins> up_ = {};
  std::array<int64_t, kBins> down_ = {};
};

/// Returns whether elements so many places apart have one random number; with
/// `pairs`, only those of places 0 and 1, 2 and 3, and so on.
bool ShareNumbers(const std::vector<RoundingGroup>& groups, size_t rows,
                  size_t cols, bool pairs) {
  constexpr double kEnough = 64.0;
  constexpr double kFew = 8.0;
  double expected = 0.0;
  double found = 0.0;
  for (const RoundingGroup& group : groups) {
    const size_t apart = rows * group.cols + cols;
    for (size_t i = 0; i + apart < group.all.size(); ++i) {
      const size_t place = rows > 0 ? i / group.cols : i % group.cols;
      if (group.cols - i % group.cols <= cols || (pairs && place % 2 == 1)) {
        continue;
      }
      const Rounding* low = &group.all[i];
      const Rounding* high = &group.all[i + apart];
      if (low->remainder < 0.0 || high->remainder < 0.0) continue;
      if (low->remainder > high->remainder) std::swap(low, high);
      expected += low->remainder * (1.0 - high->remainder);
      found += low->up && !high->up ? 1.0 : 0.0;
    }
  }
  return expected >= kEnough && found <= expected / kFew;
}

/// Names a threshold that lies between two numbers.
std::pair<std::string, std::string> NameOf(double low, double high) {
  constexpr double kNear = 0.02;
  if (low - kNear < 0.5 && high + kNear > 0.5) {
    return {"rounded_to_nearest", "all were rounded to nearest, not at random"};
  }
  if (low < kNear) {
    return {"rounded_away", "all were rounded away from zero, not at random"};
  }
  if (high > 1.0 - kNear) {
    return {"rounded_toward_zero",
            "all were rounded toward zero, not at random"};
  }
  return {"one_random_number",
          fmt::format("all had one random number: remainders above {:.2g} were "
                      "rounded up",
                      low)};
}

void NameRepeated(const std::vector<RoundingGroup>& groups, Roundings& result) {
  for (const bool rows : {true, false}) {
    const char* noun = rows ? "row" : "column";
    for (const size_t apart : {1, 2, 4, 8, 16, 32}) {
      for (const bool pairs : {false, true}) {
        if ((pairs && apart > 1) ||
            !ShareNumbers(groups, rows ? apart : 0, rows ? 0 : apart, pairs)) {
          continue;
        }
        result.name = "random_numbers_repeat";
        result.sentence =
            pairs
                ? fmt::format("pairs of {}s had the same random numbers", noun)
                : fmt::format(
                      "elements {} {}{} apart had the same random numbers",
                      apart, noun, apart == 1 ? "" : "s");
        return;
      }
    }
  }
}

}  // namespace

bool IsRoundedUp(const formats::Format& format, uint8_t code, float lower,
                 float scaled) {
  const uint32_t next =
      MagnitudeOf(format, formats::Encode(format, lower,
                                          formats::Overflow::kSaturate)) +
      1;
  const bool is_next = MagnitudeOf(format, code) == next &&
                       std::isfinite(formats::Decode(format, code));
  const bool is_negative = code >> (format.bits() - 1) != 0;
  return is_next && is_negative == std::signbit(scaled) &&
         std::fabs(scaled) > std::fabs(lower);
}

Roundings JudgeRoundings(const std::vector<const Side*>& sides,
                         const Codes& codes) {
  return JudgeRoundings(GroupsOf(sides, codes));
}

Roundings JudgeRoundings(const std::vector<RoundingGroup>& groups) {
  Roundings result;
  Shares shares;
  Thresholds thresholds;
  for (const RoundingGroup& group : groups) {
    for (size_t i = 0; i < group.all.size(); ++i) {
      const Rounding& rounding = group.all[i];
      if (rounding.remainder < 0.0) continue;
      ++result.elements;
      shares.Add(rounding, i / group.cols, i % group.cols);
      thresholds.Add(rounding);
    }
  }
  NameRepeated(groups, result);
  const std::string wrong = shares.Wrong();
  if (result.fit() && wrong.empty()) return result;
  if (const auto threshold = thresholds.Find(result.elements)) {
    std::tie(result.name, result.sentence) =
        NameOf(threshold->first, threshold->second);
  } else if (result.fit()) {
    result.name = "rounding_biased";
    result.sentence = wrong;
  }
  return result;
}

oracle::Comparison ComparisonOf(const Roundings& roundings) {
  oracle::Comparison comparison(oracle::Grid::kBf16);
  if (roundings.fit()) {
    comparison.AddEqual(static_cast<size_t>(roundings.elements));
  }
  for (int64_t i = 0; !roundings.fit() && i < roundings.elements; ++i) {
    comparison.AddOther(0, 0, 1.0f, 0.0);
  }
  return comparison;
}

Finding FindingOf(const OperationCase& given, const std::string& name,
                  const Roundings& roundings) {
  Finding finding = FindingOf(given, name + " roundings", name + "_roundings",
                              ComparisonOf(roundings));
  if (roundings.name == "rounding_biased") {
    finding.remark = fmt::format("Of {}, {}.", name, roundings.sentence);
  } else if (!roundings.fit()) {
    finding.explanation = Explanation{
        .name = fmt::format("{}.{}", roundings.name, name),
        .sentence = fmt::format("of {}, {}", name, roundings.sentence)};
  }
  return finding;
}

}  // namespace isoloss::operations
