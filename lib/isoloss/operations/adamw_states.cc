// Compares moments that an optimizer stores as codes with FP32 scales.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/formats/format.h"
#include "isoloss/operations/adamw.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/operations/fit.h"

namespace isoloss::operations {
namespace {

using formats::Format;
using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

constexpr const char* kMoments[] = {"exp_avg", "exp_avg_sq"};

/// Decodes one moment. Each scale is that of a block of neighbours, as the
/// tensor lies in memory.
void Decode(const std::string& name, const std::string& where,
            Operation& operation) {
  const Codes* codes = operation.FindCodes(name + "_codes");
  const Floats* scales = operation.Find(name + "_scales");
  if (codes == nullptr && scales == nullptr) return;
  const auto fail = [&](const std::string& found, const char* rule) {
    ThrowError(ErrorKind::kFormat,
               "{}: {} {}, but must {}. Record the step again by the layout of "
               "docs/check-tensors.md.",
               where, name, found, rule);
  };
  if (codes == nullptr || scales == nullptr) {
    fail("has codes or scales only", "have both");
  }
  if (codes->type != "e4m3" && codes->type != "e5m2") {
    fail("has codes of an unknown format", "be e4m3 or e5m2");
  }
  const size_t count = scales->values.size();
  if (count == 0 || codes->values.size() % count != 0) {
    fail(fmt::format("has {} codes and {} scales", codes->values.size(), count),
         "have blocks of equally many codes");
  }
  const Format& format = formats::FormatByName(codes->type);
  const size_t block = codes->values.size() / count;
  Floats decoded = {.extent = codes->extent, .type = codes->type};
  decoded.values.resize(codes->values.size());
  for (size_t i = 0; i < decoded.values.size(); ++i) {
    decoded.values[i] =
        formats::Decode(format, codes->values[i]) * scales->values[i / block];
  }
  operation.floats[name] = std::move(decoded);
}

/// A way to store a moment.
struct Storing {
  double largest;  ///< code that the block's largest magnitude gets
  bool has_one_scale = false;
  bool truncates = false;
  bool inverts_scale = false;
  bool rounds_to_bf16 = false;
  /// Codes are those of values that had been stored by these scales.
  const Floats* twice = nullptr;
  const Floats* scales = nullptr;  ///< of another step; null: of this one
};

class StoredMoment {
 public:
  StoredMoment(const OperationCase& given, const PartText& part,
               const AdamWRule& rule)
      : given_(given),
        part_(part),
        rule_(rule),
        codes_(*given.operation.FindCodes(std::string(part.tensor) + "_codes")),
        scales_(*given.operation.Find(std::string(part.tensor) + "_scales")),
        format_(formats::FormatByName(codes_.type)),
        block_(codes_.values.size() / scales_.values.size()) {}

  void Check(std::vector<Finding>& findings) {
    const Storing right = {.largest = Largest()};
    const std::vector<Estimate> values = ValuesOf(rule_);
    for (const bool is_scales : {true, false}) {
      Finding finding = FindingOf(
          given_,
          std::string(part_.tensor) + (is_scales ? " scales" : " codes"),
          std::string(part_.tensor) + (is_scales ? "_scales" : "_codes"),
          Compare(is_scales, values, right));
      if (!finding.is_right()) {
        Explain(Trials(is_scales, values, right), finding,
                [&] { return FurtherTrials(is_scales, values, right); });
      }
      findings.push_back(std::move(finding));
    }
  }

 private:
  double Largest() const {
    return static_cast<double>(formats::Decode(
        format_,
        formats::Encode(format_, 1e30f, formats::Overflow::kSaturate)));
  }
  std::vector<Estimate> ValuesOf(const AdamWRule& rule) const {
    const Corrections corrections(rule);
    std::vector<Estimate> values(codes_.values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] =
          Update(rule, corrections, ElementOf(given_.operation, rule, i)).*
          part_.estimate;
    }
    return values;
  }
  Comparison Compare(bool is_scales, const std::vector<Estimate>& values,
                     const Storing& storing) const {
    return is_scales ? CompareScales(values, storing)
                     : CompareCodes(values, storing);
  }
  /// A scale is the largest magnitude over the format's largest number. That
  /// has a rounding; some trainers round the inverse, and invert it again.
  Comparison CompareScales(const std::vector<Estimate>& values,
                           const Storing& storing) const {
    Comparison comparison(Grid::kFp32);
    const size_t block = storing.has_one_scale ? values.size() : block_;
    for (size_t b = 0; b < scales_.values.size(); ++b) {
      const size_t first = b * block_ / block * block;
      double low = 0.0;
      double high = 0.0;
      double exact = 0.0;
      for (size_t i = first; i < first + block; ++i) {
        const double size = std::fabs(values[i].exact);
        low = std::max(low, size - values[i].bound);
        high = std::max(high, size + values[i].bound);
        exact = std::max(exact, size);
      }
      const float found = scales_.values[b];
      if (storing.scales != nullptr) {
        comparison.AddExact(b, 0, found, storing.scales->values[b]);
        continue;
      }
      // Torchao takes no maximum below 1e-12; of zeros, any scale does.
      constexpr double kLeast = 1e-12;
      const bool is_least =
          exact < kLeast &&
          std::fabs(static_cast<double>(found) - kLeast / storing.largest) <=
              oracle::Gamma(2) * kLeast / storing.largest;
      if (is_least || high == 0.0) {
        comparison.AddExact(b, 0, found, std::isfinite(found) ? found : 0.0f);
        continue;
      }
      const double due = storing.inverts_scale ? storing.largest / exact
                                               : exact / storing.largest;
      const double off = std::max(high - exact, exact - low) / exact;
      comparison.Add(b, 0, found, due,
                     due * (off + oracle::Gamma(3)) + oracle::kTiny, 0.0);
    }
    return comparison;
  }
  /// Values are divided by their scale, or multiplied by its inverse: three
  /// roundings. Codes of all values within the bound are right.
  Comparison CompareCodes(const std::vector<Estimate>& values,
                          const Storing& storing) const {
    Comparison comparison(Grid::kBf16);
    const size_t cols =
        std::max<size_t>(codes_.Extent(codes_.extent.size() - 1), 1);
    for (size_t i = 0; i < values.size(); ++i) {
      const Floats& scales =
          storing.scales != nullptr ? *storing.scales : scales_;
      const auto scale = static_cast<double>(scales.values[i / block_]);
      const float found = formats::Decode(format_, codes_.values[i]);
      double exact = values[i].exact;
      if (storing.rounds_to_bf16) {
        exact = static_cast<double>(RoundTo(Grid::kBf16, exact));
      }
      if (storing.twice != nullptr) {
        const auto before =
            static_cast<double>(storing.twice->values[i / block_]);
        exact = static_cast<double>(Coded(exact / before, storing)) * before;
      }
      if (!(scale > 0.0)) {
        comparison.AddExact(i / cols, i % cols, found, 0.0f);
        continue;
      }
      const double bound = values[i].bound / scale +
                           oracle::Gamma(3) * std::fabs(exact / scale) +
                           oracle::kTiny;
      const auto want = static_cast<double>(Coded(exact / scale, storing));
      const auto low =
          static_cast<double>(Coded(exact / scale - bound, storing));
      const auto high =
          static_cast<double>(Coded(exact / scale + bound, storing));
      comparison.Add(i / cols, i % cols, found, want,
                     std::max(want - low, high - want), 0.0);
    }
    return comparison;
  }
  /// Returns the number that the format's code has.
  float Coded(double value, const Storing& storing) const {
    // Through FP32, a value just off a tie would become one: it is rounded to
    // odd first.
    auto narrow = static_cast<float>(value);
    const auto back = static_cast<double>(narrow);
    if (back != value && (std::bit_cast<uint32_t>(narrow) & 1) == 0 &&
        std::isfinite(back)) {
      narrow = oracle::internal::Beyond(narrow, back < value, 0);
    }
    uint32_t code =
        formats::Encode(format_, narrow, formats::Overflow::kSaturate);
    if (storing.truncates &&
        std::fabs(formats::Decode(format_, code)) > std::fabs(narrow)) {
      --code;  // the next number toward zero
    }
    return formats::Decode(format_, code);
  }

  std::vector<Trial> Trials(bool is_scales, const std::vector<Estimate>& values,
                            const Storing& right) const {
    std::vector<Trial> trials;
    const auto add = [&](const char* name, const char* sentence,
                         const Storing& storing) {
      trials.push_back({name, sentence, [this, is_scales, &values, storing] {
                          return std::optional(
                              Compare(is_scales, values, storing));
                        }});
    };
    Storing altered = right;
    const Operation& operation = given_.operation;
    const std::string stem(part_.tensor, std::strlen(part_.tensor) - 6);
    const Floats* before = operation.Find(stem + "_before_scales");
    const bool has_before =
        before != nullptr && before->values.size() == scales_.values.size();
    if (is_scales) {
      altered.has_one_scale = true;
      add("scale_of_tensor", "all blocks had the scale of the whole tensor",
          altered);
      altered = right;
      altered.inverts_scale = true;
      add("scale_inverted", "scales were the inverse of what codes need",
          altered);
      if (has_before) {
        altered = right;
        altered.scales = before;
        add("scale_of_step_before", "scales were those of the step before",
            altered);
      }
      return trials;
    }
    altered.truncates = true;
    add("truncated", "codes were rounded toward zero", altered);
    altered = right;
    altered.rounds_to_bf16 = true;
    add("from_bf16", "the moment was rounded to BF16 first", altered);
    if (has_before) {
      altered = right;
      altered.twice = before;
      add("quantized_twice",
          "the moment was quantised twice: by the scales of the step before, "
          "then by its own",
          altered);
      altered = right;
      altered.scales = before;
      add("codes_by_scale_before",
          "codes were made with the scales of the step before", altered);
    }
    return trials;
  }
  /// Returns the mistakes of the moment itself, and a fit of scales.
  std::vector<Trial> FurtherTrials(bool is_scales,
                                   const std::vector<Estimate>& values,
                                   const Storing& right) const {
    std::vector<Trial> trials;
    ForEachAdamWMistake(
        given_, rule_,
        [&](const char* name, const char* sentence, const AdamWRule& altered) {
          trials.push_back({name, sentence, [this, is_scales, right, altered] {
                              return std::optional(
                                  Compare(is_scales, ValuesOf(altered), right));
                            }});
        });
    AdamWRule skipped = rule_;
    skipped.skips = true;
    trials.push_back({"not_updated", "the moments were not updated",
                      [this, is_scales, right, skipped] {
                        return std::optional(
                            Compare(is_scales, ValuesOf(skipped), right));
                      }});
    if (!is_scales) return trials;
    Fit fit;
    fit.name = "scale_scaled";
    fit.sentence = [](double factor) {
      return fmt::format("scales were {:.9g} times what the maxima give",
                         factor);
    };
    fit.compare = [this, &values, right](double factor) {
      Storing altered = right;
      altered.largest /= factor;
      return CompareScales(values, altered);
    };
    for (size_t b = 0; b < scales_.values.size(); ++b) {
      double most = 0.0;
      for (size_t i = b * block_; i < (b + 1) * block_; ++i) {
        most = std::max(most, std::fabs(values[i].exact));
      }
      const double due = most / right.largest;
      fit.range.Add(due, 0.0, scales_.values[b], Grid::kFp32,
                    due * oracle::Gamma(12));
    }
    for (Trial& trial : Confirmed({fit})) trials.push_back(std::move(trial));
    return trials;
  }

  const OperationCase& given_;
  const PartText& part_;
  const AdamWRule& rule_;
  const Codes& codes_;
  const Floats& scales_;
  const Format& format_;
  const size_t block_;
};

}  // namespace

void DecodeStates(OperationFile& file) {
  for (size_t i = 0; i < file.operations.size(); ++i) {
    Operation& operation = file.operations[i];
    if (operation.type != "adamw") continue;
    for (const char* moment : kMoments) {
      for (const char* when : {"_before", "_after"}) {
        Decode(std::string(moment) + when, file.Where(i), operation);
      }
    }
  }
}

void CheckStoredMoment(const OperationCase& given, const PartText& part,
                       const AdamWRule& rule, std::vector<Finding>& findings) {
  StoredMoment(given, part, rule).Check(findings);
}

}  // namespace isoloss::operations
