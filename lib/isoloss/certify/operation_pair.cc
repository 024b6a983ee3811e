#include "isoloss/certify/operation_pair.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "isoloss/base/printable.h"

namespace isoloss::certify {
namespace {

using operations::Array;
using operations::Operation;
using operations::OperationFile;

// ---- tensors ----------------------------------------------------------------

bool AreEqual(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}
template <typename T>
bool AreEqual(T a, T b) {
  return a == b;
}

std::string ValueText(float value) {
  return fmt::format("{} ({:08x})", value, std::bit_cast<uint32_t>(value));
}
template <typename T>
std::string ValueText(T value) {
  return fmt::format("{}", value);
}

std::vector<size_t> PlaceOf(size_t index, const std::vector<size_t>& extent) {
  std::vector<size_t> place(extent.size());
  for (size_t axis = extent.size(); axis-- > 0;) {
    const size_t size = std::max<size_t>(1, extent[axis]);
    place[axis] = index % size;
    index /= size;
  }
  return place;
}

template <typename T>
std::optional<TensorDifference> Different(const std::string& name,
                                          const Array<T>* a,
                                          const Array<T>* b) {
  if (a == nullptr && b == nullptr) return std::nullopt;
  TensorDifference found = {.name = name};
  const auto extent = [](const Array<T>* array) {
    return array == nullptr
               ? std::string("absent")
               : fmt::format("[{}] {}", fmt::join(array->extent, ", "),
                             Printable(array->type));
  };
  if (a == nullptr || b == nullptr || a->extent != b->extent ||
      a->type != b->type) {
    const auto size = (a == nullptr ? b : a)->values.size();
    found.elements = found.of = static_cast<int64_t>(size);
    found.first = extent(a);
    found.other = extent(b);
    return found;
  }
  found.of = static_cast<int64_t>(a->values.size());
  for (size_t i = 0; i < a->values.size(); ++i) {
    if (AreEqual(a->values[i], b->values[i])) continue;
    found.zeros += (a->values[i] == T{}) != (b->values[i] == T{}) ? 1 : 0;
    if (found.elements++ > 0) continue;
    found.place = PlaceOf(i, a->extent);
    found.first = ValueText(a->values[i]);
    found.other = ValueText(b->values[i]);
  }
  return found.elements == 0 ? std::nullopt : std::optional(found);
}

std::set<std::string> TensorNames(const Operation& operation) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : operation.floats) names.insert(name);
  for (const auto& [name, tensor] : operation.integers) names.insert(name);
  for (const auto& [name, tensor] : operation.codes) names.insert(name);
  return names;
}

// ---- parts ------------------------------------------------------------------

/// Names what a part of an operation of that type reads and gives. A name that
/// ends in `_` stands for all that begin with it: codes and scales.
struct PartRule {
  std::string_view type;  ///< as kinds of operations end
  std::string_view name;
  bool is_backward = false;
  std::vector<std::string_view> inputs = {};
  std::vector<std::string_view> results = {};
};

const std::vector<PartRule>& Rules() {
  static const std::vector<PartRule> rules = {
      {"linear", "fprop_x", false, {"x"}, {"fprop_x_"}},
      {"linear", "fprop_w", false, {"weight"}, {"fprop_w_"}},
      {"linear",
       "fprop",
       false,
       {"x", "weight", "bias", "group_ends", "fprop_x_", "fprop_w_"},
       {"output"}},
      {"linear", "dgrad_dy", true, {"grad_output"}, {"dgrad_dy_"}},
      {"linear", "dgrad_w", true, {"weight"}, {"dgrad_w_"}},
      {"linear",
       "dgrad",
       true,
       {"grad_output", "weight", "group_ends", "dgrad_dy_", "dgrad_w_"},
       {"grad_input"}},
      {"linear", "wgrad_dy", true, {"grad_output"}, {"wgrad_dy_"}},
      {"linear", "wgrad_x", true, {"x"}, {"wgrad_x_"}},
      {"linear",
       "wgrad",
       true,
       {"grad_output", "x", "group_ends", "wgrad_dy_", "wgrad_x_"},
       {"grad_weight"}},
      {"router", "scores", false, {"logits"}, {"scores"}},
      {"router", "choice", false, {"scores", "bias"}, {"expert_ids"}},
      {"router", "weights", false, {"scores", "expert_ids"}, {"weights"}},
      {"dispatch", "rows", false, {"tokens", "source"}, {"rows"}},
      {"combine",
       "output",
       false,
       {"rows", "source", "weights", "addend"},
       {"output"}},
      {"loss", "loss", false, {"logits", "labels"}, {"loss"}},
  };
  return rules;
}

bool Matches(std::string_view name, std::string_view pattern) {
  return pattern.ends_with('_') ? name.starts_with(pattern) : name == pattern;
}

std::vector<std::string> Chosen(const std::set<std::string>& names,
                                const std::vector<std::string_view>& patterns) {
  std::vector<std::string> chosen;
  for (const std::string_view pattern : patterns) {
    for (const std::string& name : names) {
      if (Matches(name, pattern)) chosen.push_back(name);
    }
  }
  return chosen;
}

/// Tells results of an optimizer, or of a type without a rule, by their names.
bool IsResult(const std::string& name) {
  return name.ends_with("_after") || name == "output" || name == "update";
}

/// Has the parts of one operation that come in one pass over the step.
struct Passes {
  std::vector<OperationPart> forward = {};
  std::vector<OperationPart> backward = {};
  std::vector<OperationPart> update = {};
};

Passes PassesOf(const std::string& type, size_t place,
                std::set<std::string> names) {
  Passes passes;
  std::set<std::string> known;
  for (const PartRule& rule : Rules()) {
    if (type != rule.type &&
        !(rule.type == "linear" && type == "grouped_linear")) {
      continue;
    }
    OperationPart part = {place, std::string(rule.name),
                          Chosen(names, rule.inputs),
                          Chosen(names, rule.results)};
    known.insert(part.inputs.begin(), part.inputs.end());
    known.insert(part.results.begin(), part.results.end());
    if (rule.is_backward && part.inputs.empty()) continue;
    (rule.is_backward ? passes.backward : passes.forward)
        .push_back(std::move(part));
  }
  const bool has_rule = !passes.forward.empty();
  for (const std::string& name : known) names.erase(name);
  if (has_rule && names.empty()) return passes;
  // Nothing may be left out: a tensor that no rule names is an input.
  OperationPart rest = {place, has_rule ? "inputs" : "update", {}, {}};
  for (const std::string& name : names) {
    (!has_rule && IsResult(name) ? rest.results : rest.inputs).push_back(name);
  }
  (has_rule ? passes.forward : passes.update).push_back(std::move(rest));
  return passes;
}

// ---- operations -------------------------------------------------------------

/// Returns the first attribute that differs.
std::optional<TensorDifference> DifferentSetting(const Operation& a,
                                                 const Operation& b) {
  const auto first_of = [](const auto& left, const auto& right,
                           const auto& text) {
    std::optional<TensorDifference> found;
    std::set<std::string> names;
    for (const auto& [name, value] : left) names.insert(name);
    for (const auto& [name, value] : right) names.insert(name);
    for (const std::string& name : names) {
      const auto x = left.find(name);
      const auto y = right.find(name);
      const std::string of_x = x == left.end() ? "absent" : text(x->second);
      const std::string of_y = y == right.end() ? "absent" : text(y->second);
      if (of_x == of_y) continue;
      found = {.name = name, .elements = 1, .of = 1};
      found->first = of_x;
      found->other = of_y;
      return found;
    }
    return found;
  };
  if (auto found = first_of(a.numbers, b.numbers, ValueText<double>))
    return found;
  return first_of(a.texts, b.texts,
                  [](const std::string& text) { return Printable(text); });
}

/// Takes an operation or a difference of one.
template <typename Of>
std::string Title(const Of& of, const std::string& part) {
  return fmt::format("{} of {} ({})", part, Printable(of.module), of.type);
}

/// Counts the calls of each module.
class Calls {
 public:
  std::tuple<std::string, std::string, size_t> Next(const Operation& of) {
    return {of.type, of.module, met_[{of.type, of.module}]++};
  }

 private:
  std::map<std::pair<std::string, std::string>, size_t> met_;
};

OperationDifference Begin(OperationDifference::What what, size_t place,
                          const Operation& first, const Operation* other,
                          std::string part, TensorDifference tensor) {
  return {.what = what,
          .place = place,
          .first = &first,
          .other = other,
          .type = first.type,
          .module = first.module,
          .part = std::move(part),
          .tensor = std::move(tensor)};
}

/// Returns an operation that only one file has; it comes before all others.
std::optional<OperationDifference> FindMissing(
    const OperationFile& first, const OperationFile& other,
    const std::vector<const Operation*>& partners) {
  using What = OperationDifference::What;
  for (size_t i = 0; i < partners.size(); ++i) {
    if (partners[i] != nullptr) continue;
    return Begin(What::kMissing, i, first.operations[i], nullptr, "call",
                 {.first = "recorded", .other = "absent"});
  }
  const std::vector<const Operation*> back = Partners(other, first);
  for (size_t i = 0; i < back.size(); ++i) {
    if (back[i] != nullptr) continue;
    return Begin(What::kMissing, i, other.operations[i], nullptr, "call",
                 {.first = "absent", .other = "recorded"});
  }
  return std::nullopt;
}

/// Compares one part, inputs first.
std::optional<OperationDifference> DifferenceIn(const OperationPart& part,
                                                size_t place,
                                                const Operation& first,
                                                const Operation& other) {
  using What = OperationDifference::What;
  for (const std::string& name : part.inputs) {
    if (auto tensor = DifferenceOf(name, first, other)) {
      return Begin(What::kInput, place, first, &other, part.name, *tensor);
    }
  }
  if (auto setting = DifferentSetting(first, other)) {
    return Begin(What::kSetting, place, first, &other, part.name, *setting);
  }
  for (const std::string& name : part.results) {
    if (auto tensor = DifferenceOf(name, first, other)) {
      return Begin(What::kResult, place, first, &other, part.name, *tensor);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string TensorDifference::Text() const {
  if (place.empty()) {
    return fmt::format("{} is {} in the one and {} in the other",
                       Printable(name), first, other);
  }
  return fmt::format("{} of {} elements of {} differ, first [{}]: {} and {}",
                     elements, of, Printable(name), fmt::join(place, ", "),
                     first, other);
}

std::string OperationDifference::Text() const {
  const std::string title = Title(*this, part);
  switch (what) {
    case What::kResult:
      return fmt::format("{} has equal inputs and another result: {}", title,
                         tensor.Text());
    case What::kInput:
      return fmt::format("{} reads other values: {}", title, tensor.Text());
    case What::kSetting:
      return fmt::format("{} has another setting: {}", title, tensor.Text());
    case What::kMissing:
      break;
  }
  return fmt::format("{} is {} in the one and {} in the other", title,
                     tensor.first, tensor.other);
}

std::optional<TensorDifference> DifferenceOf(const std::string& name,
                                             const operations::Floats& first,
                                             const operations::Floats& other) {
  return Different(name, &first, &other);
}

std::optional<TensorDifference> DifferenceOf(const std::string& name,
                                             const Operation& first,
                                             const Operation& other) {
  if (auto found = Different(name, first.Find(name), other.Find(name))) {
    return found;
  }
  if (auto found =
          Different(name, first.FindIntegers(name), other.FindIntegers(name))) {
    return found;
  }
  return Different(name, first.FindCodes(name), other.FindCodes(name));
}

std::vector<const Operation*> Partners(const OperationFile& first,
                                       const OperationFile& other) {
  Calls calls;
  std::map<std::tuple<std::string, std::string, size_t>, const Operation*> of;
  for (const Operation& operation : other.operations) {
    of[calls.Next(operation)] = &operation;
  }
  std::vector<const Operation*> partners;
  calls = {};
  for (const Operation& operation : first.operations) {
    const auto found = of.find(calls.Next(operation));
    partners.push_back(found == of.end() ? nullptr : found->second);
  }
  return partners;
}

std::vector<OperationPart> PartsOf(
    const OperationFile& file, const std::vector<const Operation*>& others) {
  std::vector<OperationPart> parts;
  std::vector<std::vector<OperationPart>> backward;
  std::vector<OperationPart> updates;
  for (size_t i = 0; i < file.operations.size(); ++i) {
    std::set<std::string> names = TensorNames(file.operations[i]);
    if (others[i] != nullptr) names.merge(TensorNames(*others[i]));
    Passes passes = PassesOf(file.operations[i].type, i, std::move(names));
    std::ranges::move(passes.forward, std::back_inserter(parts));
    backward.push_back(std::move(passes.backward));
    std::ranges::move(passes.update, std::back_inserter(updates));
  }
  for (size_t i = backward.size(); i-- > 0;) {
    std::ranges::move(backward[i], std::back_inserter(parts));
  }
  std::ranges::move(updates, std::back_inserter(parts));
  return parts;
}

OperationPair Compare(const OperationFile& first, const OperationFile& other) {
  OperationPair pair;
  const std::vector<const Operation*> partners = Partners(first, other);
  for (size_t i = 0; i < partners.size(); ++i) {
    if (partners[i] == nullptr) continue;
    std::set<std::string> names = TensorNames(first.operations[i]);
    names.merge(TensorNames(*partners[i]));
    ++pair.operations;
    pair.tensors += static_cast<int64_t>(names.size());
  }
  pair.first = FindMissing(first, other, partners);
  if (!pair.first) {
    const std::vector<OperationPart> parts = PartsOf(first, partners);
    for (size_t i = 0; i < parts.size(); ++i) {
      const size_t at = parts[i].operation;
      auto found =
          DifferenceIn(parts[i], i, first.operations[at], *partners[at]);
      if (!found) continue;
      if (pair.first) {
        if (found->what == OperationDifference::What::kResult) {
          pair.others.push_back(Title(first.operations[at], parts[i].name));
        }
        continue;
      }
      pair.first = std::move(found);
      if (i == 0) continue;
      const OperationPart& before = parts[i - 1];
      pair.first->after =
          Title(first.operations[before.operation], before.name);
    }
  }
  if (pair.first) {
    pair.first->step = first.step;
    pair.first->rank = first.rank;
  }
  return pair;
}

}  // namespace isoloss::certify
