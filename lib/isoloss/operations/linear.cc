#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>

#include "isoloss/operations/catalogue.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/partial_sums.h"
#include "isoloss/operations/product.h"
#include "isoloss/operations/product_judge.h"
#include "isoloss/operations/recorded_operand.h"
#include "isoloss/operations/roundings.h"

namespace isoloss::operations {
namespace {

using precision::GemmPrecision;
using precision::GemmRole;

/// These are the operands of one operation, by group.
class LinearOperands {
 public:
  explicit LinearOperands(const OperationCase& given) : given_(given) {
    const Operation& operation = given.operation;
    ends_ = {operation.Find("x")->extent[0]};
    if (const Integers* ends = operation.FindIntegers("group_ends")) {
      ends_.assign(ends->values.begin(), ends->values.end());
    }
    const Floats& weight = *operation.Find("weight");
    out_ = weight.extent[weight.extent.size() - 2];
  }

  size_t groups() const { return ends_.size(); }
  size_t out() const { return out_; }
  size_t Begin(size_t group) const { return group == 0 ? 0 : ends_[group - 1]; }

  /// Returns rows of x or grad_output, or the weight, of one group.
  Side Of(const char* name, size_t group) const {
    Side side;
    side.values = Part(*given_.operation.Find(name), name, group, Begin(group),
                       ends_[group]);
    side.previous = PartOf(given_.previous, name, group);
    side.previous_call = PartOf(given_.call_before, name, group);
    return side;
  }

 private:
  /// Returns nothing if the part is not known: groups may have had other
  /// numbers of rows before.
  std::optional<MatrixView<const float>> PartOf(const Operation* operation,
                                                const char* name,
                                                size_t group) const {
    const Floats* tensor =
        operation == nullptr ? nullptr : operation->Find(name);
    if (tensor == nullptr ||
        tensor->extent != given_.operation.Find(name)->extent) {
      return std::nullopt;
    }
    return Part(*tensor, name, group, Begin(group), ends_[group]);
  }
  MatrixView<const float> Part(const Floats& tensor, std::string_view name,
                               size_t group, size_t begin, size_t end) const {
    return name == "weight" ? tensor.Rows().Rows(group * out_, out_)
                            : tensor.Rows().Rows(begin, end - begin);
  }

  const OperationCase& given_;
  std::vector<size_t> ends_;
  size_t out_ = 0;
};

/// A plan says what a product reads and makes.
struct ProductPlan {
  GemmRole role;
  const char* output;
  const char* kind;  ///< of the output's name in probe logs
  bool left_down;
  bool right_down;

  const LinearOperand& left() const { return OperandsOf(role)[0]; }
  const LinearOperand& right() const { return OperandsOf(role)[1]; }
};
constexpr ProductPlan kPlans[] = {
    {GemmRole::kFprop, "output", "output", false, false},
    {GemmRole::kDgrad, "grad_input", "dgrad", false, true},
    {GemmRole::kWgrad, "grad_weight", "wgrad", true, true}};

/// Rows without elements, or an empty weight, can't be compared.
bool CanBeMultiplied(const Operation& operation) {
  return operation.Find("x")->extent[1] != 0 &&
         !operation.Find("weight")->values.empty();
}

bool HasResult(const Operation& operation, const ProductPlan& plan) {
  return operation.Find(plan.left().tensor) != nullptr &&
         operation.Find(plan.output) != nullptr;
}

/// Returns one operand of all groups, as the file has it.
RecordedOperand OperandOf(const OperationCase& given, const ProductPlan& plan,
                          bool left, Product& product) {
  const LinearOperand& part = left ? plan.left() : plan.right();
  RecordedOperand operand = {
      .given = given, .name = part.name, .tensor = part.tensor, .sides = {}};
  for (ProductGroup& group : product.groups) {
    operand.sides.push_back(left ? &group.left : &group.right);
  }
  return operand;
}

bool NeedsState(const std::optional<formats::Quantization>& quantization) {
  return quantization && quantization->needs_state();
}

/// Takes the state of both operands from the file.
void TakeStates(const OperationCase& given, const ProductPlan& plan,
                Product& product) {
  for (const bool left : {true, false}) {
    if (product.groups.empty()) continue;
    const RecordedOperand operand = OperandOf(given, plan, left, product);
    std::string& missing = product.missing[left ? 0 : 1];
    missing = TakeState(operand);
    if (missing.empty() && NeedsState(operand.sides[0]->before)) {
      missing = "it was quantised from values that no file has";
    }
  }
}

/// Fixes operands that only their codes tell. Returns why the product can't be
/// judged, as a sentence without full stop; "": it can.
std::string FixByCodes(const OperationCase& given, const ProductPlan& plan,
                       Product& product) {
  for (const bool left : {true, false}) {
    const RecordedOperand operand = OperandOf(given, plan, left, product);
    const std::string& missing = product.missing[left ? 0 : 1];
    const bool is_random =
        !operand.sides.empty() && operand.sides[0]->random_bits > 0;
    if (!is_random && missing.empty()) {
      // Whoever predicts sums reads codes and scales that stand fast.
      for (Side* side : operand.sides) {
        if (side->needs_fixing()) side->Fix();
      }
      continue;
    }
    if (TakeCodes(operand)) continue;
    return fmt::format(
        "{} was not judged: {} is {}, and the file has no codes and scales of "
        "it that fit",
        GemmRoleName(plan.role), operand.tensor,
        is_random ? std::string("rounded at random")
                  : "unknown, since " + missing);
  }
  return "";
}

/// Returns the product with its result, if that is recorded.
Product ProductOf(const OperationCase& given, const LinearOperands& operands,
                  const ProductPlan& plan, const LinearRule& rules) {
  const precision::LinearPrecision& precision = rules.precision;
  const GemmPrecision& of_recipe = rules.recipe.For(plan.role);
  const GemmPrecision& rule = precision.For(plan.role);
  Product product = {.role = plan.role, .arithmetic = {rule.accumulation}};
  for (size_t g = 0; g < operands.groups(); ++g) {
    ProductGroup& group = product.groups.emplace_back();
    // Codes of the right operand can be compared without the left one.
    if (given.operation.Find(plan.left().tensor) != nullptr) {
      group.left = operands.Of(plan.left().tensor, g);
    }
    group.right = operands.Of(plan.right().tensor, g);
    group.left.down = plan.left_down;
    group.right.down = plan.right_down;
    group.left.quantization = rule.left;
    group.right.quantization = rule.right;
    if (precision.is_plain()) {
      group.left.left_out = of_recipe.left;
      group.right.left_out = of_recipe.right;
    }
    if (rule.left_again) group.left.before = precision.dgrad.left;
    if (rule.right_again) group.right.before = precision.fprop.left;
    group.left.partner = std::make_shared<const Side>(group.right);
    group.right.partner = std::make_shared<const Side>(group.left);
    group.first_row =
        plan.role == GemmRole::kWgrad ? g * operands.out() : operands.Begin(g);
  }
  TakeStates(given, plan, product);
  const Floats* bias = given.operation.Find("bias");
  if (plan.role == GemmRole::kFprop && bias != nullptr) {
    product.bias = bias->values.data();
  }
  if (HasResult(given.operation, plan)) {
    const Floats& output = *given.operation.Find(plan.output);
    product.grid = GridOf(output, plan.output, given.where);
    product.output = output.Rows();
    product.parts =
        PartsOf(given.operation, plan.role, given.mesh, given.ranks);
  }
  return product;
}

/// Marks every code and scale as wrong, since the recipe has none here.
CodeComparison AllOther(const Codes& codes, const Scales& scales) {
  CodeComparison comparison;
  for (size_t i = 0; i < codes.values.size(); ++i) {
    comparison.codes.AddOther(0, i, codes.values[i], HUGE_VAL);
  }
  for (size_t i = 0; i < scales.values.size(); ++i) {
    comparison.scales.AddOther(0, i, scales.values[i], HUGE_VAL);
  }
  for (size_t i = 0; i < scales.of_tensors.size(); ++i) {
    comparison.of_tensors.AddOther(i, 0, scales.of_tensors[i], HUGE_VAL);
  }
  comparison.remark = "The recipe does not quantise this operand.";
  return comparison;
}

/// Sets what a trial leaves wrong in one part.
void Narrow(const std::vector<Trial>& trials, const Explanation& of_both,
            Finding& finding) {
  if (finding.is_right()) return;
  finding.explanation = of_both;
  for (const Trial& trial : trials) {
    const bool is_best = trial.name == of_both.name;
    if (!is_best && trial.name != of_both.runner_up) continue;
    const auto comparison = trial.compare();
    if (!comparison) continue;
    (is_best ? finding.explanation->other
             : finding.explanation->runner_up_other) = comparison->other();
  }
}

/// Adds a finding that says what was not compared.
void AddOpen(const OperationCase& given, const std::string& part,
             std::string text, std::vector<Finding>& findings) {
  findings.push_back(
      FindingOf(given, part, part, oracle::Comparison(oracle::Grid::kBf16)));
  findings.back().open = std::move(text);
}

/// Rounds what a transform made of values to BF16, or not, as codes say.
void ChooseRotation(const RecordedOperand& operand, const Scales& scales) {
  if (!operand.sides[0]->quantization->transforms()) return;
  std::vector<Side> others;
  for (const Side* side : operand.sides) {
    others.push_back(*side);
    others.back().rounds_rotation = !side->rounds_rotation;
  }
  const std::vector<const Side*> now(operand.sides.begin(),
                                     operand.sides.end());
  std::vector<const Side*> then;
  for (const Side& other : others) then.push_back(&other);
  const auto found = CompareCodes(now, *operand.codes(), scales);
  const auto other = CompareCodes(then, *operand.codes(), scales);
  if (!found || !other || found->Both().other() <= other->Both().other()) {
    return;
  }
  for (Side* side : operand.sides) {
    side->rounds_rotation = !side->rounds_rotation;
  }
}

/// Adds a finding about the codes, one about the scales and, if the file has
/// them, one about the scales of whole tensors. All have one reason, which
/// explains most of their wrong elements together.
void CompareRecorded(const OperationCase& given, const char* name,
                     const std::vector<const Side*>& sides, const Codes& codes,
                     const Scales& scales, bool knows_scales,
                     std::vector<Finding>& findings) {
  const CodeComparison comparison =
      CompareCodes(sides, codes, scales).value_or(AllOther(codes, scales));
  Finding both = FindingOf(given, name, name, comparison.Both());
  const double maxima_factor =
      both.is_right() ? 1.0 : MaximaFactorOf(sides, codes, scales);
  const auto trials = [&](CodePart part) {
    return TrialsOf(sides, name, codes, scales, part, given.shares,
                    maxima_factor);
  };
  Explain(trials([](const CodeComparison& c) { return c.Both(); }), both);
  struct Part {
    const char* name;
    const char* kind;
    CodePart of;
    const std::string& remark;
    bool is_there;
  };
  const std::string none;
  const Part parts[] = {
      {"codes", "codes", [](const CodeComparison& c) { return c.codes; }, none,
       true},
      {"scales", "scales", [](const CodeComparison& c) { return c.scales; },
       comparison.remark, knows_scales},
      {"tensor scale", "tensor_scale",
       [](const CodeComparison& c) { return c.of_tensors; },
       comparison.remark_of_tensors, !scales.of_tensors.empty()}};
  for (const Part& part : parts) {
    if (!part.is_there) continue;
    Finding finding =
        FindingOf(given, fmt::format("{} {}", name, part.name),
                  fmt::format("{}_{}", name, part.kind), part.of(comparison));
    if (both.explanation) Narrow(trials(part.of), *both.explanation, finding);
    finding.untried = UntriedOf(*sides.front());
    finding.remark = part.remark;
    findings.push_back(std::move(finding));
  }
  if (sides[0]->random_bits > 0 && comparison.codes.other() == 0) {
    findings.push_back(FindingOf(given, name, JudgeRoundings(sides, codes)));
    findings.back().knows_previous = true;
  }
}

/// Compares codes and scales of an operand, if the file has them. Scales whose
/// rule needs a history that is missing are taken as they are.
void CheckOperandCodes(const RecordedOperand& operand,
                       const std::string& missing,
                       std::vector<Finding>& findings) {
  const Codes* codes = operand.codes();
  const std::optional<Scales> scales =
      ScalesOf(operand.given.operation, operand.name);
  if (codes == nullptr || !scales) return;
  const char* name = operand.name;
  if (!missing.empty()) {
    const bool has_scales =
        operand.sides[0]->quantization->reads_history() && TakeScales(operand);
    AddOpen(
        operand.given, name,
        fmt::format("{} of {} were not checked, since {}",
                    has_scales ? "scales" : "codes and scales", name, missing),
        findings);
    if (!has_scales) return;
  }
  const std::vector<const Side*> sides(operand.sides.begin(),
                                       operand.sides.end());
  if (sides[0]->quantization) {
    ChooseRotation(operand, *scales);
    if (sides[0]->quantization->scales_tensor() &&
        scales->format == formats::ScaleFormat::kE4m3 &&
        scales->of_tensors.empty()) {
      AddOpen(operand.given, name,
              fmt::format("the scale of the whole tensor of {0} was not "
                          "checked, since {0}_tensor_scale is missing",
                          name),
              findings);
    }
  }
  CompareRecorded(operand.given, name, sides, *codes, *scales, missing.empty(),
                  findings);
}

}  // namespace

std::span<const LinearOperand, 2> OperandsOf(GemmRole role) {
  return std::span<const LinearOperand, 2>(
      kLinearOperands + 2 * static_cast<size_t>(role), 2);
}

const char* ResultName(GemmRole role) {
  return std::ranges::find(kPlans, role, &ProductPlan::role)->output;
}

std::vector<Product> LinearProductsOf(const OperationCase& given,
                                      const LinearRule& rule) {
  std::vector<Product> products;
  if (!CanBeMultiplied(given.operation)) return products;
  const LinearOperands operands(given);
  for (const ProductPlan& plan : kPlans) {
    if (!HasResult(given.operation, plan)) continue;
    Product product = ProductOf(given, operands, plan, rule);
    if (!FixByCodes(given, plan, product).empty()) continue;
    products.push_back(std::move(product));
  }
  return products;
}

void CheckLinear(const OperationCase& given, const LinearRule& rule,
                 std::span<const SumsOfProduct> sums,
                 std::vector<Finding>& findings) {
  CheckWeight(given, findings);
  if (!CanBeMultiplied(given.operation)) return;
  const LinearOperands operands(given);
  size_t results = 0;
  for (const ProductPlan& plan : kPlans) {
    Product product = ProductOf(given, operands, plan, rule);
    Product judged = product;
    const std::string open = FixByCodes(given, plan, judged);
    for (const bool left : {true, false}) {
      if (left && given.operation.Find(plan.left().tensor) == nullptr) continue;
      CheckOperandCodes(OperandOf(given, plan, left, product),
                        product.missing[left ? 0 : 1], findings);
    }
    if (!HasResult(given.operation, plan)) continue;
    if (!open.empty()) {
      AddOpen(given, std::string(GemmRoleName(plan.role)), open, findings);
      continue;
    }
    findings.push_back(JudgeProduct(
        given, {plan.left().tensor, plan.right().tensor}, plan.kind, judged,
        sums.empty() ? SumsOfProduct() : sums[results++]));
  }
}

}  // namespace isoloss::operations
