#include "isoloss/operations/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/formats/format.h"

namespace isoloss::operations {
namespace {

template <typename Map>
auto FindIn(const Map& map, std::string_view name) {
  const auto found = map.find(name);
  return found == map.end() ? nullptr : &found->second;
}

using Extent = std::vector<size_t>;

/// Checks one operation; every message begins with its place.
class ExtentCheck {
 public:
  ExtentCheck(const Operation& operation, std::string where)
      : operation_(operation), where_(std::move(where)) {}

  void Run() {
    const std::string& type = operation_.type;
    if (type == "linear") return Linear();
    if (type == "grouped_linear") return GroupedLinear();
    if (type == "router") return Router();
    if (type == "dispatch") return Dispatch();
    if (type == "combine") return Combine();
    if (type == "adamw") return AdamW();
    if (type == "muon") return Muon();
    if (type == "loss") return Loss();
    Fail(fmt::format("its type is `{}`", Printable(type)),
         "linear, grouped_linear, router, dispatch, combine, adamw, muon or "
         "loss");
  }

 private:
  [[noreturn]] void Fail(const std::string& found, const std::string& rule) {
    ThrowError(ErrorKind::kFormat,
               "{}: {}, but must be {}. Record the step again by the layout of "
               "docs/check-tensors.md.",
               where_, found, rule);
  }
  template <typename Tensor>
  const Tensor& Required(const Tensor* tensor, const char* name, size_t axes) {
    if (tensor == nullptr) Fail(fmt::format("{} is missing", name), "there");
    if (tensor->extent.size() != axes) {
      Fail(fmt::format("{} is [{}]", name, fmt::join(tensor->extent, ", ")),
           fmt::format("of {} axes", axes));
    }
    return *tensor;
  }
  const Floats& Required(const char* name, size_t axes) {
    return Required(operation_.Find(name), name, axes);
  }
  const Integers& RequiredIntegers(const char* name, size_t axes) {
    return Required(operation_.FindIntegers(name), name, axes);
  }
  template <typename Tensor>
  void Fits(const Tensor* tensor, const std::string& name,
            const Extent& extent) {
    if (tensor == nullptr || tensor->extent == extent) return;
    Fail(
        fmt::format("{} is [{}]", name, fmt::join(tensor->extent, ", ")),
        fmt::format("[{}], as the other tensors are", fmt::join(extent, ", ")));
  }
  void Fits(const char* name, const Extent& extent) {
    Fits(operation_.Find(name), name, extent);
  }
  void InRange(const Integers& values, const char* name, size_t end) {
    for (const int64_t value : values.values) {
      if (value < 0 || static_cast<uint64_t>(value) >= end) {
        Fail(fmt::format("{} has {}", name, value),
             fmt::format("from 0 to {}", static_cast<int64_t>(end) - 1));
      }
    }
  }
  /// Checks codes of one operand. Scales of blocks that are not the layout's
  /// are a finding, and no error.
  void Operand(const std::string& name, const Extent& codes) {
    const Codes* code = operation_.FindCodes(name + "_codes");
    const Floats* scale = operation_.Find(name + "_scales");
    if ((code == nullptr) !=
        (scale == nullptr &&
         operation_.FindCodes(name + "_scales") == nullptr)) {
      Fail(fmt::format("{} has {} only", name,
                       code == nullptr ? "scales" : "codes"),
           "both codes and scales");
    }
    if (scale != nullptr && scale->type != "float32") {
      Fail(
          fmt::format("{}_scales has dtype `{}`", name, Printable(scale->type)),
          "uint8 of E8M0, or float32");
    }
    const Codes* bytes = operation_.FindCodes(name + "_scales");
    if (bytes != nullptr && !bytes->type.empty() && bytes->type != "e8m0" &&
        bytes->type != "e4m3") {
      Fail(fmt::format("{}_scales has the format `{}`", name,
                       Printable(bytes->type)),
           "of the format e8m0 or e4m3");
    }
    const Floats* of_tensor = operation_.Find(name + "_tensor_scale");
    if (of_tensor != nullptr && code == nullptr) {
      Fail(fmt::format("{} has a scale of the tensor only", name),
           "with codes and scales");
    }
    Fits(code, name + "_codes", codes);
    if (code != nullptr) CodesInFormat(*code, name + "_codes");
  }
  void CodesInFormat(const Codes& codes, const std::string& name) {
    const auto known = formats::AllFormats();
    const auto found = std::ranges::find(
        known, codes.type, [](const auto* each) { return each->name; });
    if (found == known.end() || (*found)->bits() > 8) {
      Fail(fmt::format("{} has the format `{}`", name, Printable(codes.type)),
           "of a format of at most 8 bits, such as e4m3, e5m2 or e2m1");
    }
    const int bits = (*found)->bits();
    for (size_t i = 0; i < codes.values.size(); ++i) {
      if (codes.values[i] >> bits == 0) continue;
      Fail(fmt::format("byte {} of {} is {}", i, name, codes.values[i]),
           fmt::format("one code of {}, which has {} bits: from 0 to {}",
                       codes.type, bits, (1 << bits) - 1));
    }
  }
  /// Requires a width above zero, unless there is nothing to compare at all.
  void HaveWidths(size_t rows, size_t k, size_t n) {
    if (rows > 0 && n > 0 && k == 0) {
      Fail("K, the width of x and weight, is 0", "1 or more");
    }
    if (rows > 0 && k > 0 && n == 0) {
      Fail("N, the rows of weight, is 0", "1 or more");
    }
  }

  void Linear() {
    const Extent x = Required("x", 2).extent;
    const Extent w = Required("weight", 2).extent;
    const size_t t = x[0];
    const size_t k = x[1];
    const size_t n = w[0];
    HaveWidths(t, k, n);
    Fits("bias", {n});
    LinearTensors(x, {n, k}, {t, n});
  }

  void LinearTensors(const Extent& x, const Extent& weight,
                     const Extent& output) {
    Fits("weight", weight);
    Fits("output", output);
    Fits("grad_output", output);
    Fits("grad_input", x);
    Fits("grad_weight", weight);
    for (const LinearOperand& operand : kLinearOperands) {
      const std::string_view tensor = operand.tensor;
      Operand(operand.name, tensor == "x"        ? x
                            : tensor == "weight" ? weight
                                                 : output);
    }
  }

  void GroupedLinear() {
    const Extent x = Required("x", 2).extent;
    const Extent w = Required("weight", 3).extent;
    const Integers& ends = RequiredIntegers("group_ends", 1);
    const size_t m = x[0];
    const size_t k = x[1];
    const size_t e = w[0];
    const size_t n = w[1];
    HaveWidths(m, k, n);
    Fits(&ends, "group_ends", {e});
    int64_t begin = 0;
    for (const int64_t end : ends.values) {
      if (end < begin || static_cast<uint64_t>(end) > m) {
        Fail(fmt::format("group_ends has {} after {}", end, begin),
             fmt::format("ascending up to the {} rows", m));
      }
      begin = end;
    }
    LinearTensors(x, {e, n, k}, {m, n});
  }

  void Router() {
    const Extent scores = Required("scores", 2).extent;
    Fits("logits", scores);
    Fits("bias", {scores[1]});
    const Integers* ids = operation_.FindIntegers("expert_ids");
    if (ids == nullptr) return;
    Required(ids, "expert_ids", 2);
    Fits(ids, "expert_ids", {scores[0], ids->extent[1]});
    Fits("weights", ids->extent);
    InRange(*ids, "expert_ids", scores[1]);
    if (operation_.Find("logits") == nullptr) return;
    const std::string function = operation_.Text("score_function");
    if (function != "sigmoid" && function != "softmax") {
      Fail("score_function is neither", "`sigmoid` or `softmax`");
    }
  }

  void Dispatch() {
    const Extent tokens = Required("tokens", 2).extent;
    const Integers& source = RequiredIntegers("source", 1);
    Fits(&Required("rows", 2), "rows", {source.extent[0], tokens[1]});
    InRange(source, "source", tokens[0]);
  }

  void Combine() {
    const Extent rows = Required("rows", 2).extent;
    const Extent output = Required("output", 2).extent;
    const Integers& source = RequiredIntegers("source", 1);
    Fits(&source, "source", {rows[0]});
    Fits("output", {output[0], rows[1]});
    Fits("weights", {rows[0]});
    Fits("addend", output);
    InRange(source, "source", output[0]);
  }

  /// Requires the state before a step, and tensors of the parameter's shape.
  const Extent& State(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (operation_.Find(name) == nullptr) {
        Fail(fmt::format("{} is missing", name), "there");
      }
    }
    const Extent& extent = operation_.Find("parameter_before")->extent;
    for (const auto& [name, tensor] : operation_.floats) {
      if (name != "coefficients" && !name.ends_with("_scales")) {
        Fits(&tensor, name, extent);
      }
    }
    IsOneOf("expected", {"skipped"});
    IsOneOf("decay", {"decoupled", "l2"});
    IsOneOf("rounding", {"nearest", "stochastic"});
    return extent;
  }
  /// Requires that the attribute, if it is there, is one of the texts.
  void IsOneOf(const char* name, std::initializer_list<const char*> texts) {
    const auto found = operation_.texts.find(name);
    if (found == operation_.texts.end() ||
        std::ranges::any_of(
            texts, [&](const char* text) { return found->second == text; })) {
      return;
    }
    Fail(fmt::format("attribute {} is `{}`", name, Printable(found->second)),
         fmt::format("`{}`, or absent", fmt::join(texts, "` or `")));
  }
  template <typename Holds>
  void IsNumber(const char* name, const Holds& holds, const char* rule) {
    if (!operation_.numbers.contains(name)) {
      Fail(fmt::format("attribute {} is missing", name), "there");
    }
    const double value = operation_.Number(name, 0);
    if (!std::isfinite(value) || !holds(value)) {
      Fail(fmt::format("attribute {} is {}", name, value), rule);
    }
  }
  void IsCount(const char* name, double least, double most, const char* rule) {
    IsNumber(
        name,
        [&](double value) {
          return value >= least && value <= most && std::floor(value) == value;
        },
        rule);
  }
  static bool IsAny(double) { return true; }
  static bool IsBeta(double value) { return value >= 0 && value < 1; }

  void AdamW() {
    State({"parameter_before", "gradient", "exp_avg_before",
           "exp_avg_sq_before"});
    IsNumber("lr", IsAny, "a finite number");
    IsNumber("beta1", IsBeta, "from 0 to below 1");
    IsNumber("beta2", IsBeta, "from 0 to below 1");
    IsNumber(
        "eps", [](double eps) { return eps > 0; }, "above 0 and finite");
    IsNumber("weight_decay", IsAny, "a finite number");
    IsCount("step", 1, 1e9, "a whole number from 1 to 10^9");
    IsOneOf("corrections", {"float32", "float64"});
  }

  void Muon() {
    const Extent& extent =
        State({"parameter_before", "gradient", "momentum_before"});
    if (extent.size() < 2) {
      Fail(fmt::format("parameter_before is [{}]", fmt::join(extent, ", ")),
           "a matrix");
    }
    for (const char* name : {"lr", "weight_decay"}) {
      IsNumber(name, IsAny, "a finite number");
    }
    IsNumber("momentum", IsBeta, "from 0 to below 1");
    // Trainers take 5 to 12; a file shall not ask for any work it likes.
    IsCount("ns_steps", 0, 32, "a whole number from 0 to 32");
    const Extent rows = Required("coefficients", 2).extent;
    const auto steps = static_cast<size_t>(operation_.Number("ns_steps", 0));
    if (rows[1] != 3 || (rows[0] != 1 && rows[0] != steps)) {
      Fail(
          fmt::format("coefficients is [{}, {}]", rows[0], rows[1]),
          fmt::format("[1, 3] or [{}, 3]: three numbers for each step", steps));
    }
    IsOneOf("momentum_rule", {"lerp", "sum"});
    IsOneOf("scale_rule",
            {"original", "match_rms_adamw", "unclamped", "spectral", "none"});
    IsOneOf("ns_dtype", {"bfloat16", "float16", "float32"});
  }

  void Loss() {
    const Extent logits = Required("logits", 2).extent;
    const Integers& labels = RequiredIntegers("labels", 1);
    Fits(&labels, "labels", {logits[0]});
    Fits(&Required("loss", 1), "loss", {1});
    const auto ignored =
        static_cast<int64_t>(operation_.Number("ignore_index", -100));
    Integers counted = labels;
    std::erase(counted.values, ignored);
    InRange(counted, "labels", logits[1]);
  }

  const Operation& operation_;
  const std::string where_;
};

}  // namespace

const Floats* Operation::Find(std::string_view name) const {
  return FindIn(floats, name);
}
const Integers* Operation::FindIntegers(std::string_view name) const {
  return FindIn(integers, name);
}
const Codes* Operation::FindCodes(std::string_view name) const {
  return FindIn(codes, name);
}
double Operation::Number(std::string_view name, double otherwise) const {
  const double* found = FindIn(numbers, name);
  return found == nullptr ? otherwise : *found;
}

std::string Operation::Text(std::string_view name) const {
  const std::string* found = FindIn(texts, name);
  return found == nullptr ? "" : *found;
}

const LinearOperand* OperandOfTensor(std::string_view tensor) {
  for (const LinearOperand& operand : kLinearOperands) {
    const std::string_view name = operand.name;
    if (tensor.starts_with(name) && tensor.substr(name.size()).starts_with('_'))
      return &operand;
  }
  return nullptr;
}

void SpreadCodes(Operation& operation) {
  for (auto& [name, codes] : operation.codes) {
    if (codes.type != "e2m1x2" || codes.extent.empty()) continue;
    std::vector<uint8_t> spread;
    spread.reserve(2 * codes.values.size());
    for (const uint8_t byte : codes.values) {
      spread.push_back(byte & 0xF);
      spread.push_back(byte >> 4);
    }
    codes.values = std::move(spread);
    codes.extent.back() *= 2;
    codes.type = "e2m1";
  }
}

std::string OperationFile::Where(size_t operation) const {
  return fmt::format("{}: operation {} ({}, {})", path, operation,
                     Printable(operations[operation].type),
                     Printable(operations[operation].module));
}

std::optional<oracle::Grid> GridOf(const Floats& tensor) {
  if (tensor.type == "bfloat16") return oracle::Grid::kBf16;
  if (tensor.type == "float16") return oracle::Grid::kFp16;
  if (tensor.type == "float32") return oracle::Grid::kFp32;
  return std::nullopt;
}

oracle::Grid GridOf(const Floats& tensor, const std::string& name,
                    const std::string& where) {
  if (const auto grid = GridOf(tensor)) return *grid;
  ThrowError(
      ErrorKind::kFormat,
      "{}: {} has dtype `{}`, but results are checked on the grids of "
      "bfloat16, float16 and float32. Record a step of a trainer that keeps "
      "it in one of them.",
      where, name, Printable(tensor.type));
}

void CheckExtents(const OperationFile& file) {
  for (size_t i = 0; i < file.operations.size(); ++i) {
    ExtentCheck(file.operations[i], file.Where(i)).Run();
  }
}

}  // namespace isoloss::operations
