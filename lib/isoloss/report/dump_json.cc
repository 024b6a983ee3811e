#include "isoloss/report/dump_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace isoloss::report {
namespace {

using document::Json;
using document::PutInteger;
using document::PutNumber;

using compare::BlockDifference;
using compare::OperationError;
using compare::TensorDifference;

/// A value that is not finite becomes null; its codes and scale say what it is.
Json ValuesJson(const std::vector<float>& values) {
  Json list = Json::array();
  for (const float value : values) {
    list.push_back(std::isfinite(value) ? Json(value) : Json());
  }
  return list;
}

Json BlockJson(const std::optional<BlockDifference>& block) {
  if (!block) return nullptr;
  Json json{{"row", block->row},         {"column", block->col},
            {"scale_a", block->scale_a}, {"scale_b", block->scale_b},
            {"codes_a", block->codes_a}, {"codes_b", block->codes_b},
            {"differing", block->count}, {"blocks", block->of}};
  json["decoded_a"] = ValuesJson(block->decoded_a);
  json["decoded_b"] = ValuesJson(block->decoded_b);
  return json;
}

Json CellJson(const std::optional<compare::CellDifference>& cell) {
  if (!cell) return nullptr;
  Json json{{"tensor", cell->segment}, {"row", cell->row},
            {"step", cell->col},       {"code_a", cell->code_a},
            {"code_b", cell->code_b},  {"differing", cell->count},
            {"cells", cell->of}};
  PutNumber(json, "scale_a", static_cast<double>(cell->scale_a));
  PutNumber(json, "scale_b", static_cast<double>(cell->scale_b));
  return json;
}

Json SideJson(const compare::OperandBlock::Side& side) {
  Json json{{"format", nullptr}, {"scale", nullptr}, {"codes", nullptr}};
  if (!side.format.empty()) {
    json["format"] = side.format;
  }
  if (!side.codes.empty()) {
    json["scale"] = side.scale;
    json["codes"] = side.codes;
  }
  json["values"] = ValuesJson(side.values);
  return json;
}

Json OperandJson(const compare::OperandBlock& block) {
  return {{"tensor", block.tensor},
          {"row", block.row},
          {"column", block.col},
          {"a", SideJson(block.a)},
          {"b", SideJson(block.b)}};
}

Json TensorJson(const TensorDifference& tensor) {
  Json json{{"name", tensor.name},
            {"order", tensor.order},
            {"shape_a", tensor.shape_a},
            {"shape_b", tensor.shape_b}};
  // Tensors of different shape have no elements to compare.
  const bool comparable = tensor.shape_a == tensor.shape_b;
  const auto number = [&](double value) {
    return comparable ? std::optional(value) : std::nullopt;
  };
  const auto integer = [&](int64_t value) {
    return comparable ? std::optional(value) : std::nullopt;
  };
  PutInteger(json, "differing", integer(tensor.differing));
  PutInteger(json, "elements", integer(tensor.elements));
  PutNumber(json, "max_abs", number(tensor.max_abs));
  PutNumber(json, "relative_l2", number(tensor.relative_l2));
  json["first_elements"] = Json::array();
  for (const compare::ElementDifference& e : tensor.first_elements) {
    Json element{{"row", e.row}, {"column", e.col}};
    PutNumber(element, "a", static_cast<double>(e.a));
    PutNumber(element, "b", static_cast<double>(e.b));
    PutInteger(element, "ulps", compare::UlpDistance(e.a, e.b));
    json["first_elements"].push_back(element);
  }
  json["rowwise"] = BlockJson(tensor.rowwise);
  json["columnwise"] = BlockJson(tensor.columnwise);
  json["cells_rowwise"] = CellJson(tensor.cells_rowwise);
  json["cells_columnwise"] = CellJson(tensor.cells_columnwise);
  return json;
}

Json OperationJson(const OperationError& operation) {
  Json json{{"result", operation.result}, {"inputs", operation.inputs}};
  PutNumber(json, "error", operation.error);
  PutNumber(json, "input_error", operation.input_error);
  PutNumber(json, "growth", operation.growth);
  PutNumber(json, "added", operation.added);
  return json;
}

}  // namespace

Json DumpComparisonJson(const runlog::TensorDump& a,
                        const runlog::TensorDump& b,
                        const compare::DumpDifference& difference,
                        const compare::ErrorGrowth& growth) {
  Json json{{"run_a", a.run},
            {"run_b", b.run},
            {"step", a.step},
            {"equal", difference.tensors.empty()},
            {"equal_tensors", difference.equal},
            {"agreeing_before_first", difference.agreeing_before_first},
            {"only_a", difference.only_a},
            {"only_b", difference.only_b},
            {"tensors", Json::array()},
            {"first_source", nullptr},
            {"left_out", Json::array()},
            {"unmeasured", growth.unmeasured},
            {"operations", Json::array()},
            {"optimizer_operations", Json::array()},
            {"operands", Json::array()}};
  for (const TensorDifference& tensor : difference.tensors) {
    json["tensors"].push_back(TensorJson(tensor));
  }
  if (growth.first_source) {
    json["first_source"] = OperationJson(*growth.first_source);
  }
  for (const OperationError& operation : growth.operations) {
    json["operations"].push_back(OperationJson(operation));
  }
  for (const OperationError& operation : growth.optimizer) {
    json["optimizer_operations"].push_back(OperationJson(operation));
  }
  for (const compare::LeftOut& of : growth.left_out) {
    json["left_out"].push_back({{"module", of.module}, {"reason", of.reason}});
  }
  for (const compare::OperandBlock& block : difference.operands) {
    json["operands"].push_back(OperandJson(block));
  }
  return json;
}

}  // namespace isoloss::report
