#include "isoloss/operations/product_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "isoloss/operations/deviation_pattern.h"
#include "isoloss/operations/other_order.h"
#include "isoloss/operations/partial_sums.h"
#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

/// Splits that predict as much on some elements are compared on all.
constexpr size_t kMostSplits = 16;
/// No mistake is sought in a larger product, since each takes a product's time.
constexpr double kMostMultiplyAdds = 0x1p33;

std::string UntriedOf(const Product& product) {
  if (MultiplyAdds(product) > kMostMultiplyAdds) {
    return "The product has more than 2^33 multiplications: no mistake was "
           "tried.";
  }
  const ProductGroup& group = product.groups.front();
  std::string text = operations::UntriedOf(group.left);
  if (text.empty()) text = operations::UntriedOf(group.right);
  if (product.parts > 1) {
    text += fmt::format(
        "{}Placements tell of {} parts on as many ranks: mistakes of operands "
        "were sought in whole sums only.",
        text.empty() ? "" : " ", product.parts);
  }
  return text;
}

/// Another adder is no mistake where the recipe declares none.
bool IsOfAdder(const Trial& trial) {
  constexpr std::string_view kNames[] = {
      "sums_hopper_f13", "sums_hopper_f13_128", "sums_blackwell_f25",
      "sums_fp32",       "sums_13_bits",        "sums_13_bits_128",
      "sums_cut_off"};
  return std::ranges::find(kNames, trial.name) != std::end(kNames);
}

class ProductJudge {
 public:
  ProductJudge(const OperationCase& given, const SideNames& names,
               const char* kind, const Product& product)
      : given_(given), names_(names), kind_(kind), product_(product) {}

  Finding Judge(const SumsOfProduct& sums) const {
    Finding finding = Predicted(sums);
    if (finding.is_right()) {
      finding.has_unknown_order =
          !sums.of_others.empty() && finding.sums.empty();
      return finding;
    }
    if (auto of_parts = InParts()) return *of_parts;
    return Explained(std::move(finding), sums);
  }

 private:
  /// Compares with the product by an arithmetic.
  Finding Compared(const Arithmetic& arithmetic) const {
    Product product = product_;
    product.arithmetic = arithmetic;
    auto deviations = std::make_shared<Deviations>(
        product.grid, product.output.rows(), product.output.cols());
    Finding finding =
        FindingOf(given_, std::string(GemmRoleName(product.role)), kind_,
                  Compare(product, deviations.get())
                      .value_or(oracle::Comparison(product.grid)));
    if (arithmetic.has_bits()) {
      finding.sums = arithmetic.Text();
      finding.deviations = std::move(deviations);
    }
    finding.places =
        PlacesOf(finding.comparison, product.output.rows(), "rows");
    finding.untried = UntriedOf(product);
    return finding;
  }

  /// Compares with the arithmetic that was found. If many elements differ, the
  /// product may be split along k.
  Finding Predicted(const SumsOfProduct& sums) const {
    const bool is_found = sums.arithmetic.has_bits();
    if (!is_found && sums.of_others.empty()) {
      return Compared(product_.arithmetic);
    }
    std::optional<Finding> found;
    if (is_found) {
      found = BestOfAlike(sums);
      if (found->is_right()) return *found;
    }
    Finding any_order = Compared(product_.arithmetic);
    if (found && !MayBeSplit(any_order, *found)) return *found;
    for (const Arithmetic& other : sums.of_others) {
      Finding bits = Compared(other);
      // No other order moves all elements in one bit.
      if (HaveOneBit(*bits.deviations)) return bits;
      const std::vector<Arithmetic> splits = FindSplits(product_, other);
      for (size_t i = 0; i < std::min(kMostSplits, splits.size()); ++i) {
        Finding tried = Compared(splits[i]);
        if (tried.is_right()) return tried;
      }
    }
    return found && !any_order.is_right() ? *found : any_order;
  }

  /// Returns the finding by the arithmetic that leaves the fewest wrong
  /// elements, of those that predict all that were tried.
  Finding BestOfAlike(const SumsOfProduct& sums) const {
    Finding best = Compared(sums.arithmetic);
    if (best.is_right()) {
      for (const Arithmetic& other : sums.alike) {
        // Ways of scaling have the same text.
        if (other.Text() != best.sums) {
          best.sums_alike.push_back(other.Text());
        }
      }
      return best;
    }
    for (const Arithmetic& other : sums.alike) {
      Finding tried = Compared(other);
      if (tried.comparison.other() < best.comparison.other()) {
        best = std::move(tried);
      }
    }
    return best;
  }

  /// Returns whether the prediction was no good: exact sums predict about as
  /// many elements, or more than one of a thousand differ. A sick processor
  /// spoils fewer, or by more than any order of sums does. But an FP32 result
  /// that was predicted at all has only few other orders.
  bool MayBeSplit(const Finding& any_order, const Finding& bits) const {
    constexpr int64_t kFew = 1000;
    const int64_t wrong = bits.comparison.other();
    const bool are_few = bits.comparison.elements() >= kFew * wrong;
    if (!any_order.is_right()) return !are_few;
    return any_order.comparison.Row().flips < 2 * wrong ||
           (product_.grid != oracle::Grid::kFp32 && !are_few);
  }

  /// Compares with a sum over the ranks that placements tell of. A declared
  /// accumulator would have to predict the bits of each part.
  std::optional<Finding> InParts() const {
    const double sums = static_cast<double>(product_.output.rows()) *
                        static_cast<double>(product_.output.cols()) *
                        static_cast<double>(product_.parts);
    if (product_.parts < 2 || product_.arithmetic.has_bits() ||
        sums > kMostMultiplyAdds) {
      return std::nullopt;
    }
    oracle::Comparison comparison = CompareParts(product_, product_.parts);
    if (comparison.other() > 0) return std::nullopt;
    Finding finding =
        FindingOf(given_, std::string(GemmRoleName(product_.role)), kind_,
                  std::move(comparison));
    finding.has_unknown_order = true;
    finding.rounded_parts = product_.parts;
    return finding;
  }

  /// Tries mistakes under each arithmetic until one explains all.
  Finding Explained(Finding finding, const SumsOfProduct& sums) const {
    if (MultiplyAdds(product_) > kMostMultiplyAdds) {
      AddPattern(finding);
      return finding;
    }
    const bool has_one_bit =
        finding.deviations != nullptr && HaveOneBit(*finding.deviations);
    std::optional<Finding> best;
    for (const Arithmetic& way : WaysOf(sums)) {
      if (has_one_bit && !way.has_bits()) continue;
      // Under FP32 sums a mistake may explain a few elements by chance.
      if (way == product_.arithmetic) {
        if (auto other = InOtherOrder(sums)) return *other;
      }
      Finding tried = finding.sums == (way.has_bits() ? way.Text() : "")
                          ? finding
                          : Compared(way);
      // FP32 sums in any order explain a pattern, too.
      if (tried.is_right()) continue;
      Explain(way, tried);
      // Whoever guesses an adder must explain all.
      const bool is_guess = best && !IsOneOf(way, sums);
      if (!best || (!is_guess && LeftBy(tried) < LeftBy(*best)) ||
          IsExplained(tried)) {
        best = std::move(tried);
      }
      if (IsExplained(*best)) break;
    }
    if (LeftBy(*best) > 0) {
      // A product with its own adder has no trial under FP32 sums.
      if (sums.arithmetic.has_bits()) {
        if (auto other = InOtherOrder(sums)) return *other;
      }
      AddPattern(*best);
    }
    return *best;
  }

  /// Returns the arithmetic that was found, or those of other products, or
  /// those that the card may have if no product tells.
  std::vector<Arithmetic> WaysOf(const SumsOfProduct& sums) const {
    if (sums.arithmetic.has_bits()) return {sums.arithmetic};
    std::vector<Arithmetic> ways = sums.of_others;
    ways.push_back(product_.arithmetic);
    if (sums.of_others.empty()) {
      std::ranges::copy(sums.possible, std::back_inserter(ways));
    }
    return ways;
  }
  bool IsOneOf(const Arithmetic& way, const SumsOfProduct& sums) const {
    return way == product_.arithmetic || way == sums.arithmetic ||
           std::ranges::find(sums.of_others, way) != sums.of_others.end();
  }

  /// Says how wrong elements are alike if the other ones are as predicted.
  static void AddPattern(Finding& finding) {
    const oracle::Comparison& comparison = finding.comparison;
    if (finding.deviations != nullptr &&
        2 * comparison.other() < comparison.elements()) {
      finding.looks_sick = LookSick(*finding.deviations, comparison.elements());
      finding.remark = PatternText(*finding.deviations, comparison.elements()) +
                       " The other elements have the bits of " + finding.sums +
                       ".";
    }
  }

  void Explain(const Arithmetic& arithmetic, Finding& finding) const {
    Product product = product_;
    product.arithmetic = arithmetic;
    std::vector<Trial> trials = TrialsOf(product, names_, finding.comparison);
    if (!(arithmetic == product_.arithmetic)) {
      std::erase_if(trials, IsOfAdder);
    }
    std::ranges::move(TrialsOfParts(product_), std::back_inserter(trials));
    operations::Explain(trials, finding, [&] {
      return TrialsOfRows(
          {.found = product.output,
           .grid = product.grid,
           .for_each = [&](const auto& use) { ForEachSum(product, use); },
           .noun = "row",
           .content = "results"},
          finding.comparison.wrong_rows());
    });
    finding.places =
        PlacesOf(finding.comparison, product.output.rows(), "rows");
  }

  /// If other products show an adder that loses many bits, sums in another
  /// order lose about as many. No known order may explain most of the result.
  std::optional<Finding> InOtherOrder(const SumsOfProduct& sums) const {
    const kernels::Accumulator* coarse = nullptr;
    for (const Arithmetic& other : sums.of_others) {
      const Finding bits = Compared(other);
      if (!MayHaveOtherOrder(product_, *bits.deviations,
                             bits.comparison.wrong_rows())) {
        return std::nullopt;
      }
      if (other.is_coarse()) coarse = other.accumulation.accumulator;
    }
    if (coarse == nullptr || !ShrinksAsCutsDo(product_, *coarse)) {
      return std::nullopt;
    }
    Product product = product_;
    product.arithmetic = {};
    product.loses_bits = true;
    product.sum_bits = coarse->fraction_bits;
    product.sum_steps = coarse->steps;
    auto comparison = Compare(product);
    if (!comparison || comparison->other() > 0) return std::nullopt;
    Finding finding = FindingOf(given_, std::string(GemmRoleName(product.role)),
                                kind_, std::move(*comparison));
    finding.has_unknown_order = true;
    finding.coarse_cores = coarse->cores;
    return finding;
  }

  static int64_t LeftBy(const Finding& finding) {
    const int64_t others = finding.comparison.other();
    return finding.explanation ? std::min(finding.explanation->other, others)
                               : others;
  }
  static bool IsExplained(const Finding& finding) {
    return LeftBy(finding) == 0 &&
           !(finding.explanation && finding.explanation->is_guess);
  }

  const OperationCase& given_;
  SideNames names_;
  const char* kind_;
  const Product& product_;
};

}  // namespace

std::string UntriedOf(const Side& side) {
  if (!side.quantization) return "";
  std::string text;
  if (side.quantization->scale_format != formats::ScaleFormat::kE8m0) {
    text =
        "Scales are not E8M0: the rules floor, ceil, even and rceil were not "
        "tried.";
  }
  if (side.is_recorded) {
    text += text.empty() ? "" : " ";
    text +=
        "An operand is read by its recorded codes: mistakes of its values were "
        "sought in the codes only.";
  }
  return text;
}

Finding JudgeProduct(const OperationCase& given, const SideNames& names,
                     const char* kind, const Product& product,
                     const SumsOfProduct& sums) {
  return ProductJudge(given, names, kind, product).Judge(sums);
}

}  // namespace isoloss::operations
