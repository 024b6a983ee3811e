#include "isoloss/certify/result_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/certify/fixed_order.h"
#include "isoloss/inspection/check_tensors.h"
#include "isoloss/operations/check.h"
#include "isoloss/precision/recipe_file.h"

namespace isoloss::certify {
namespace {

using operations::Finding;
using operations::Floats;
using operations::Operation;
using operations::OperationFile;

/// Operations that hold no codes are judged without any if the recipe is none
/// of ours: a log may give its recipe any name.
precision::Recipe RecipeFor(const std::string& name,
                            const Operation& operation) {
  try {
    return precision::RecipeByNameOrFile(name);
  } catch (const Error&) {
    if (name.ends_with(".toml") || !operation.codes.empty()) throw;
    return precision::RecipeByName("bf16");
  }
}

/// A part of one operation was judged by its own inputs.
struct Judged {
  int64_t other = 0;
  std::string sums = {};       ///< the adder that predicts its bits; "": FP32
  std::string sentences = {};  ///< on what is wrong
};

/// Returns the operation, and behind it a few more products, which tell the
/// adder of the processor.
OperationFile WithOthers(const OperationFile& file,
                         const Operation& operation) {
  constexpr size_t kMost = 4;
  OperationFile few = {.path = file.path, .run = file.run};
  few.operations.push_back(operation);
  for (const Operation& other : file.operations) {
    if (few.operations.size() == kMost || !operation.is_linear()) break;
    if (other.is_linear() && &other != &operation) {
      few.operations.push_back(other);
    }
  }
  return few;
}

Judged Judge(const OperationFile& file, const Operation& operation,
             const std::string& part, const precision::Recipe& recipe,
             Executor& executor) {
  const std::vector<Finding> findings =
      operations::CheckOperations({WithOthers(file, operation)}, recipe,
                                  operations::CheckOptions(), executor);
  Judged judged;
  for (const Finding& finding : findings) {
    if (finding.operation != 0) continue;
    // Codes and scales of an operand are two findings.
    const bool is_part =
        finding.part == part || finding.part.starts_with(part + " ");
    if (operation.is_linear() && !is_part) continue;
    judged.other += finding.comparison.other();
    if (!finding.sums.empty()) judged.sums = finding.sums;
    if (!finding.is_right() && judged.sentences.empty()) {
      judged.sentences = inspection::Sentences(finding);
    }
  }
  return judged;
}

/// Returns places at which both outputs differ, and some more. Returns none if
/// few differ: some 500 orders are tried, and each gives one of two neighbours
/// by chance in half of the cases. So 20 elements agree once in 2000 times.
std::vector<OutputPlace> TellingPlaces(const Floats& first,
                                       const Floats& other) {
  constexpr size_t kLeast = 20;
  constexpr size_t kMost = 32;
  std::vector<OutputPlace> places;
  const size_t count = first.values.size();
  const size_t columns = first.extent.empty() ? 1 : first.extent.back();
  for (size_t i = 0; i < count && places.size() < kMost; ++i) {
    if (std::bit_cast<uint32_t>(first.values[i]) !=
        std::bit_cast<uint32_t>(other.values[i])) {
      places.emplace_back(i / columns, i % columns);
    }
  }
  if (places.size() < kLeast) return {};
  // An odd stride meets all columns of a power of two.
  for (size_t i = 0; i < count; i += (count / kMost) | 1) {
    places.emplace_back(i / columns, i % columns);
  }
  return places;
}

/// Returns the fixed order of FP32 sums that gives the differing elements.
std::string OrderOf(const OperationFile& file, const Operation& operation,
                    const std::string& part,
                    const std::vector<OutputPlace>& places,
                    const precision::Recipe& recipe) {
  const operations::CheckOptions options;
  OperationFile alone = {.path = file.path, .run = file.run};
  alone.operations.push_back(operation);
  const std::vector<OperationFile> files = {std::move(alone)};
  const operations::ModuleChoices modules(files, recipe, options);
  const operations::OperationCase given = CaseOf(files[0], 0);
  const auto products = operations::LinearProductsOf(
      given, {modules.Of(given.operation).precision, recipe});
  for (const operations::Product& product : products) {
    if (GemmRoleName(product.role) == part) {
      return FixedOrderOf(product, places);
    }
  }
  return "";
}

bool IsSplit(const std::string& order) {
  return order.find("split along k") != std::string::npos;
}

/// Both results are FP32 sums of equal products.
Cause OrderCause(const OperationFiles& files, const std::string orders[2]) {
  if (!orders[0].empty() && !orders[1].empty()) {
    const bool is_split = IsSplit(orders[0]) || IsSplit(orders[1]);
    return {is_split ? kSplitOfK : kOrderOfSums,
            fmt::format("{} has the bits of {}; {} those of {}.",
                        files.names[0], orders[0], files.names[1], orders[1])};
  }
  const std::string begin =
      "Both results are FP32 sums of equal products, in two orders";
  for (const int known : {0, 1}) {
    if (orders[known].empty()) continue;
    return {kOrderOfSums,
            fmt::format("{}: {} has the bits of {}; {} has those of no fixed "
                        "order that is known: atomics, threads or another "
                        "kernel.",
                        begin, files.names[known], orders[known],
                        files.names[1 - known])};
  }
  return {kOrderOfSums,
          begin +
              " Neither is a fixed order that is known: atomics, threads "
              "or another kernel."};
}

Cause AdderCause(const OperationFiles& files, const Judged judged[2]) {
  constexpr std::string_view kSplit = ", split along k";
  const auto adder = [&](int which) {
    return judged[which].sums.substr(0, judged[which].sums.find(kSplit));
  };
  const auto text = [&](int which) {
    return judged[which].sums.empty() ? std::string("FP32 sums in some order")
                                      : judged[which].sums;
  };
  const bool is_split = adder(0) == adder(1);
  return {is_split ? kSplitOfK : kAlgorithm,
          fmt::format("{} has the bits of {}; {} those of {}.", files.names[0],
                      text(0), files.names[1], text(1))};
}

Cause WrongCause(const OperationFiles& files, bool of_operand,
                 const Judged judged[2]) {
  if (judged[0].other > 0 && judged[1].other > 0) {
    return {kUnknown,
            "No order of summation explains the result of either run. If "
            "operands were quantised, name the recipe with --recipe."};
  }
  const int wrong = judged[0].other > 0 ? 0 : 1;
  // Only the two runs are asked about here, and no step before.
  const std::string& all = judged[wrong].sentences;
  return {kWrongResult,
          fmt::format("The result of {} is right. In that of {}, {} "
                      "{} element{}. {}",
                      files.names[1 - wrong], files.names[wrong],
                      of_operand ? "the recipe does not explain"
                                 : "no order of summation explains",
                      judged[wrong].other, judged[wrong].other == 1 ? "" : "s",
                      all.substr(0, all.find(" No file of the step before")))};
}

/// Both results are right, by what an operation of that type may do.
Cause RightCause(const OperationDifference& difference) {
  const std::string& type = difference.type;
  if (difference.part == "choice") {
    return {kAlgorithm,
            "Equal scores and biases gave other experts: equal scores were put "
            "in another order, or the choice has another algorithm."};
  }
  if (type == "combine" || type == "loss" || type == "router") {
    return {kOrderOfSums,
            "Both results are right, but were added or rounded in another "
            "order: atomics, threads or another kernel."};
  }
  return {kAlgorithm,
          "Both results are right, but were rounded otherwise: another kernel, "
          "such as a fused one."};
}

/// Names the reason why equal tensors became other codes or scales.
Cause CauseOfQuantization(const OperationDifference& difference) {
  const bool scales = difference.tensor.name.ends_with("_scales");
  if (!scales) {
    const std::string name =
        difference.tensor.name.substr(0, difference.tensor.name.rfind('_'));
    if (!DifferenceOf(name + "_scales", *difference.first, *difference.other)) {
      return {kHiddenState,
              "Equal values and equal scales gave other codes: random bits of "
              "a rounding, or another cast."};
    }
  }
  return {kScaleHistory,
          "Equal values got other scales: the history of largest values, or "
          "the scale that is kept between steps, was another one."};
}

Cause JudgedCause(const OperationDifference& difference,
                  const OperationFiles& files, const std::string& name,
                  Executor& executor) {
  const Operation& first = *difference.first;
  const Operation& other = *difference.other;
  const precision::Recipe recipe = RecipeFor(name, first);
  const Judged judged[2] = {
      Judge(files.first, first, difference.part, recipe, executor),
      Judge(files.other, other, difference.part, recipe, executor)};
  const bool of_operand =
      operations::OperandOfTensor(difference.tensor.name) != nullptr;
  const bool both_wrong = judged[0].other > 0 && judged[1].other > 0;
  if (of_operand && both_wrong) return CauseOfQuantization(difference);
  if (judged[0].other > 0 || judged[1].other > 0) {
    return WrongCause(files, of_operand, judged);
  }
  if (!first.is_linear()) return RightCause(difference);
  if (of_operand) return CauseOfQuantization(difference);
  if (judged[0].sums != judged[1].sums) return AdderCause(files, judged);
  const std::string& tensor = difference.tensor.name;
  const std::vector<OutputPlace> places =
      TellingPlaces(*first.Find(tensor), *other.Find(tensor));
  const std::string orders[2] = {
      OrderOf(files.first, first, difference.part, places, recipe),
      OrderOf(files.other, other, difference.part, places, recipe)};
  return OrderCause(files, orders);
}

}  // namespace

Cause CauseOfResult(const OperationDifference& difference,
                    const OperationFiles& files, const std::string& recipe,
                    Executor& executor) {
  if (difference.tensor.place.empty()) {
    return {kAlgorithm, "The results have other extents."};
  }
  try {
    return JudgedCause(difference, files, recipe, executor);
  } catch (const Error& error) {
    // A recipe that looks back to earlier steps is not judged.
    if (operations::OperandOfTensor(difference.tensor.name) != nullptr) {
      return CauseOfQuantization(difference);
    }
    return {kUnknown, fmt::format("It could not be judged: {}", error.what())};
  }
}

}  // namespace isoloss::certify
