// Chooses the mistakes of the catalogue that may explain a product, or codes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "isoloss/operations/catalogue.h"
#include "isoloss/operations/fit.h"
#include "isoloss/operations/group_blocks.h"
#include "isoloss/operations/rows.h"
#include "isoloss/operations/window.h"

namespace isoloss::operations {
namespace {

/// A fit puts its number into the product.
using AlterProduct = void (*)(Product& product, double number);

/// Compares the sample first, if there is one; a wrong element in it decides.
oracle::Comparison CompareFit(const Product& product, const Sample* sample,
                              AlterProduct alter, double number) {
  const auto compare = [&](Product altered) {
    alter(altered, number);
    return Compare(altered).value_or(oracle::Comparison(altered.grid));
  };
  if (sample != nullptr) {
    oracle::Comparison window = compare(sample->product);
    if (window.other() > 0) return window;
  }
  return compare(product);
}

/// Returns fits of factors: of the result and, with a bias, of either term.
/// They are from the sample or, without one, from the whole.
std::vector<Fit> FitsOf(const Product& product,
                        const std::shared_ptr<const Sample>& sample) {
  const Product& part = sample == nullptr ? product : sample->product;
  FactorRange result, sums, bias;
  ForEachSum(part, [&](size_t row, size_t column, const oracle::Estimate& sum) {
    const double added =
        part.bias == nullptr ? 0.0 : static_cast<double>(part.bias[column]);
    const float found = part.output(row, column);
    // The result or the product may have been rounded before.
    const auto rounding = [&](double exact) {
      return std::fabs(static_cast<double>(RoundTo(part.grid, exact)) - exact);
    };
    const double bound = sum.bound + rounding(sum.exact) +
                         rounding(sum.exact - added) +
                         2 * oracle::kUnitRoundoff * std::fabs(sum.exact);
    result.Add(sum.exact, 0.0, found, part.grid, bound);
    sums.Add(sum.exact - added, added, found, part.grid, bound);
    bias.Add(added, sum.exact - added, found, part.grid, bound);
  });
  std::vector<Fit> fits;
  const auto add = [&](const char* name, const FactorRange& of,
                       const char* sentence, AlterProduct alter,
                       AlterProduct or_else = nullptr) {
    fits.push_back({.name = name,
                    .range = of,
                    .not_zero = true,
                    .sentence =
                        [sentence](double factor) {
                          return fmt::format(fmt::runtime(sentence), factor);
                        },
                    .compare =
                        [&product, sample, alter, or_else](double factor) {
                          oracle::Comparison comparison =
                              CompareFit(product, sample.get(), alter, factor);
                          return comparison.other() == 0 || or_else == nullptr
                                     ? comparison
                                     : CompareFit(product, sample.get(),
                                                  or_else, factor);
                        }});
  };
  add(
      "result_scaled", result, "the result was multiplied by {:.9g}",
      [](Product& altered, double f) {
        altered.factors.product = altered.factors.bias = f;
      },
      [](Product& altered, double f) { altered.factors.result = f; });
  if (product.bias == nullptr) return fits;
  add(
      "product_scaled", sums,
      "the product was multiplied by {:.9g}, the bias was not",
      [](Product& altered, double f) { altered.factors.product = f; },
      [](Product& altered, double f) {
        altered.factors.product = f;
        altered.bias_after = true;
      });
  add(
      "bias_scaled", bias, "the bias was added {:.9g} times",
      [](Product& altered, double f) { altered.factors.bias = f; },
      [](Product& altered, double f) {
        altered.factors.bias = f;
        altered.bias_after = true;
      });
  return fits;
}

/// Returns the factor of maxima that explains most of a window, or of a small
/// product. 1: none explains anything.
double MaximaFactor(const Product& product, const Sample* sample, Which which) {
  constexpr double kLargeProduct = 0x1p24;
  const Product& part = sample == nullptr ? product : sample->product;
  if (which == Which::kBoth || MultiplyAdds(part) > kLargeProduct) return 1.0;
  double best = 1.0;
  const auto now = Compare(part);
  int64_t least = now ? now->other() : 0;
  for (const double factor : MaximaFactors()) {
    const auto comparison = CompareOnWindow(
        product, sample,
        [factor](Side& side) { return FollowMaxima(factor, side); }, which);
    if (!comparison || comparison->other() >= least) continue;
    best = factor;
    least = comparison->other();
  }
  return best;
}

/// Compares with sums of an accumulator that keeps 13 bits after the point, in
/// an unknown order and unknown steps. It changes all elements. So another
/// reason must exist if only few elements or few rows are wrong.
std::optional<oracle::Comparison> CompareLossy(
    const Product& product, const oracle::Comparison& found) {
  const size_t rows = product.output.rows();
  constexpr size_t kFewRows = 4;  // one of this many
  const auto wrong =
      static_cast<size_t>(std::ranges::count(found.wrong_rows(), true));
  if (rows > kFewRows && wrong * kFewRows < rows) return std::nullopt;
  constexpr int64_t kFew = 100;  // one of this many
  Product lossy = product;
  lossy.arithmetic = {};
  lossy.loses_bits = true;
  lossy.sum_bits = 13;
  lossy.sum_steps = 32;
  auto comparison = Compare(lossy);
  if (!comparison) return std::nullopt;
  const runlog::OracleRow row = comparison->Row();
  return row.flips < row.elements / kFew ? std::nullopt : comparison;
}

std::optional<oracle::Comparison> CodesAltered(
    const std::vector<const Side*>& sides, const AlterSide& alter,
    const Codes& codes, const Scales& scales, CodePart part) {
  std::vector<Side> altered;
  bool any = false;
  for (const Side* side : sides) {
    any = alter(altered.emplace_back(*side)) || any;
  }
  std::vector<const Side*> places;
  for (const Side& side : altered) places.push_back(&side);
  if (!any) return std::nullopt;
  const auto comparison = CompareCodes(places, codes, scales);
  return comparison ? std::optional(part(*comparison)) : std::nullopt;
}

}  // namespace

/// Returns a fit of a factor of the wrong rows, if some rows are right.
static std::optional<Fit> FitOfRows(const Product& product,
                                    const oracle::Comparison& found) {
  const std::vector<bool>& wrong = found.wrong_rows();
  const std::vector<size_t> places = MarkedRows(wrong);
  if (places.empty() || places.size() == product.output.rows()) {
    return std::nullopt;
  }
  Fit fit;
  fit.name = "rows_scaled";
  fit.not_zero = true;
  fit.sentence = [places](double factor) {
    return fmt::format("the results of row{} {} were multiplied by {:.9g}",
                       places.size() == 1 ? "" : "s", FirstFew(places), factor);
  };
  fit.compare = [&product, wrong](double factor) {
    Product altered = product;
    altered.factor_rows = &wrong;
    altered.factors.product = altered.factors.bias = factor;
    oracle::Comparison comparison =
        Compare(altered).value_or(oracle::Comparison(product.grid));
    if (comparison.other() == 0) return comparison;
    altered.factors.product = altered.factors.bias = 1.0;
    altered.factors.result = factor;
    return Compare(altered).value_or(oracle::Comparison(product.grid));
  };
  ForEachSum(
      product, [&](size_t r, size_t column, const oracle::Estimate& sum) {
        if (!Marks(wrong, r)) return;
        const double rounding = std::fabs(
            static_cast<double>(RoundTo(product.grid, sum.exact)) - sum.exact);
        fit.range.Add(sum.exact, 0.0, product.output(r, column), product.grid,
                      sum.bound + rounding +
                          2 * oracle::kUnitRoundoff * std::fabs(sum.exact));
      });
  return fit;
}

/// Returns the trial that the scales of the two wrong rows are swapped.
static std::optional<Trial> TrialOfTwoRows(const Product& product,
                                           const std::string& left,
                                           const oracle::Comparison& found) {
  const std::vector<size_t> rows = MarkedRows(found.wrong_rows());
  if (rows.size() != 2 || product.groups.size() != 1) return std::nullopt;
  const std::optional<formats::Quantization>& quantization =
      product.groups[0].left.quantization;
  if (!quantization || quantization->cell.rows != 1) return std::nullopt;
  return Trial{
      .name = fmt::format("scales_swapped.{}", left),
      .sentence = fmt::format("rows {} and {} of {} had each other's scales",
                              rows[0], rows[1], left),
      .compare = [&product, a = rows[0], b = rows[1]] {
        return CompareAltered(
            product, [a, b](Side& side) { return SwapScales(a, b, side); },
            Which::kLeft);
      }};
}

std::vector<Trial> TrialsOf(const Product& product, const SideNames& names,
                            const oracle::Comparison& found) {
  std::vector<Trial> trials;
  for (const ProductMistake& mistake : ProductMistakes()) {
    trials.push_back({.name = std::string(mistake.name),
                      .sentence = std::string(mistake.sentence),
                      .compare =
                          [&product, &mistake] {
                            Product altered = product;
                            return mistake.alter(altered) ? Compare(altered)
                                                          : std::nullopt;
                          },
                      .is_right = mistake.is_right});
  }
  trials.push_back(
      {.name = "sums_cut_off",
       .sentence = "differences are as small as if sums kept some 13 "
                   "bits, as those of accumulators that cut off do",
       .compare = [&product, found] { return CompareLossy(product, found); },
       .is_vague = true,
       .is_guess = true});
  std::ranges::move(TrialsOfJoinedBlocks(product, names.left, names.right),
                    std::back_inserter(trials));
  const std::shared_ptr<const Sample> sample = SampleOf(product, found);
  if (found.other() > 0) {
    std::vector<Fit> fits = FitsOf(product, sample);
    if (auto of_rows = FitOfRows(product, found)) {
      fits.push_back(std::move(*of_rows));
    }
    std::ranges::move(Confirmed(fits), std::back_inserter(trials));
  }
  if (auto swapped = TrialOfTwoRows(product, names.left, found)) {
    trials.push_back(std::move(*swapped));
  }
  // "Both" comes last, because the first of equally good results counts.
  const std::pair<Which, std::string> sides[] = {{Which::kLeft, names.left},
                                                 {Which::kRight, names.right},
                                                 {Which::kBoth, "both"}};
  for (const SideMistake& mistake : SideMistakes()) {
    for (const auto& [which, name] : sides) {
      trials.push_back(
          {.name = fmt::format("{}.{}", mistake.name, name),
           .sentence =
               fmt::format(fmt::runtime(mistake.sentence),
                           which == Which::kBoth ? "each operand" : name),
           .compare = [&product, &mistake, sample,
                       side = which]() -> std::optional<oracle::Comparison> {
             const auto alter = [&mistake](Side& s) {
               if (s.is_recorded && mistake.of_values) return false;
               if (!s.is_recorded) s.fixed.reset();
               return mistake.alter(s);
             };
             if (FailsOnWindow(product, sample.get(), alter, side)) {
               return std::nullopt;
             }
             return CompareAltered(product, alter, side);
           },
           .is_right = mistake.is_right,
           .in_both = which == Which::kBoth});
    }
  }
  if (found.other() == 0) return trials;
  for (const auto& [which, name] : sides) {
    const double factor = MaximaFactor(product, sample.get(), which);
    if (factor == 1.0) continue;
    trials.push_back(
        {.name = fmt::format("maxima_scaled.{}", name),
         .sentence =
             fmt::format("scales of {} followed the maxima times {:.6g}",
                         which == Which::kBoth ? "each operand" : name, factor),
         .compare =
             [&product, factor, side = which] {
               return CompareAltered(
                   product,
                   [factor](Side& s) { return FollowMaxima(factor, s); }, side);
             },
         .in_both = which == Which::kBoth,
         .is_vague = true});
  }
  return trials;
}

/// Returns the trial that the scales of the two wrong rows are swapped.
static std::optional<Trial> TrialOfTwoRows(
    const std::vector<const Side*>& sides, const char* name, const Codes& codes,
    const Scales& scales, CodePart part) {
  const auto found = CompareCodes(sides, codes, scales);
  if (!found || sides.size() != 1 || sides[0]->down) return std::nullopt;
  const std::vector<size_t> rows = MarkedRows(found->scales.wrong_rows());
  if (rows.size() != 2 || sides[0]->quantization->cell.rows != 1) {
    return std::nullopt;
  }
  return Trial{
      .name = fmt::format("scales_swapped.{}", name),
      .sentence = fmt::format("rows {} and {} of {} have each other's scales",
                              rows[0], rows[1], name),
      .compare = [&sides, &codes, &scales, part, a = rows[0], b = rows[1]] {
        return CodesAltered(
            sides, [a, b](Side& side) { return SwapScales(a, b, side); }, codes,
            scales, part);
      }};
}

double MaximaFactorOf(const std::vector<const Side*>& sides, const Codes& codes,
                      const Scales& scales) {
  const auto now = CompareCodes(sides, codes, scales);
  if (!now) return 1.0;
  std::vector<double> factors(MaximaFactors().begin(), MaximaFactors().end());
  const runlog::OracleRow worst = now->scales.Row();
  const double ratio = static_cast<double>(worst.worst_value) /
                       static_cast<double>(worst.worst_expected);
  if (!scales.has_bytes() && std::isfinite(ratio) && ratio > 0) {
    for (const double number : RoundNumbersNear(ratio)) {
      factors.push_back(number);
    }
  }
  double best = 1.0;
  int64_t least = now->Both().other();
  for (const double factor : factors) {
    if (factor == 1.0) continue;
    const auto comparison = CodesAltered(
        sides, [factor](Side& side) { return FollowMaxima(factor, side); },
        codes, scales, [](const CodeComparison& c) { return c.Both(); });
    if (!comparison || comparison->other() >= least) continue;
    best = factor;
    least = comparison->other();
  }
  return best;
}

std::vector<Trial> TrialsOf(const std::vector<const Side*>& sides,
                            const char* name, const Codes& codes,
                            const Scales& scales, CodePart part,
                            const std::set<RankShare>& shares,
                            double maxima_factor) {
  std::vector<Trial> trials = {
      {.name = fmt::format("other_axis.{}", name),
       .sentence = fmt::format("blocks of {} lay along the other axis", name),
       .compare = [&sides, &codes, &scales, part] {
         const auto turn = [](Side& side) {
           side.down = !side.down;
           return true;
         };
         return CodesAltered(sides, turn, codes, scales, part);
       }}};
  std::ranges::move(TrialsOfJoinedBlocks(sides, name, codes, scales, part),
                    std::back_inserter(trials));
  for (const SideMistake& mistake : SideMistakes()) {
    // The trials above have the other axis for codes.
    if (mistake.name == "other_axis" || mistake.is_right) continue;
    trials.push_back(
        {.name = fmt::format("{}.{}", mistake.name, name),
         .sentence = fmt::format(
             fmt::runtime(mistake.of_codes.empty() ? mistake.sentence
                                                   : mistake.of_codes),
             name),
         .compare = [&sides, &codes, &scales, &mistake, part] {
           return CodesAltered(sides, mistake.alter, codes, scales, part);
         }});
  }
  if (auto swapped = TrialOfTwoRows(sides, name, codes, scales, part)) {
    trials.push_back(std::move(*swapped));
  }
  for (const RankShare& share : shares) {
    for (const bool along_rows : {false, true}) {
      trials.push_back(
          {.name = fmt::format("scale_of_part_{}_of_{}{}.{}", share.place + 1,
                               share.parts, along_rows ? "_of_rows" : "", name),
           .sentence = fmt::format(
               "scales of {} followed the largest magnitude in part {} of {} "
               "along {}, which the rank may hold, not that of the whole "
               "tensor",
               name, share.place + 1, share.parts,
               along_rows ? "rows of the operand" : "the contraction"),
           .compare = [&sides, &codes, &scales, share, along_rows, part] {
             return CodesAltered(
                 sides,
                 [&](Side& side) {
                   return FollowShare(share, along_rows, side);
                 },
                 codes, scales, part);
           }});
    }
  }
  if (maxima_factor == 1.0) return trials;
  trials.push_back(
      {.name = fmt::format("maxima_scaled.{}", name),
       .sentence = fmt::format("scales of {} followed the maxima times {:.6g}",
                               name, maxima_factor),
       .compare =
           [&sides, &codes, &scales, part, maxima_factor] {
             return CodesAltered(
                 sides,
                 [maxima_factor](Side& side) {
                   return FollowMaxima(maxima_factor, side);
                 },
                 codes, scales, part);
           },
       .is_vague = true});
  return trials;
}

}  // namespace isoloss::operations
