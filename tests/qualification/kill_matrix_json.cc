#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/document/json.h"
#include "qualification/kill_matrix_report.h"

namespace isoloss::qualification {
namespace {

using document::Json;

constexpr int64_t kKillMatrixSchemaVersion = 1;

Json CellJson(const KillCell& cell) {
  Json levels = Json::array();
  for (const auto& level : cell.levels) {
    levels.push_back(level ? Json(gate::OutcomeName(*level)) : Json(nullptr));
  }
  return {{"seed", cell.seed},
          {"levels", levels},
          {"verdict", gate::OutcomeName(cell.verdict)},
          {"finding", cell.finding},
          {"peer_accepts", cell.peer_accepts},
          {"loss_nats", cell.loss_nats},  // NaN and infinity become null
          {"bit_equal", cell.bit_equal},
          {"first_different_step", cell.first_different_step},
          {"seconds", cell.seconds}};
}

gate::Outcome OutcomeByName(const std::string& name) {
  for (const auto outcome : {gate::Outcome::kPass, gate::Outcome::kInconclusive,
                             gate::Outcome::kFail, gate::Outcome::kInvalid}) {
    if (gate::OutcomeName(outcome) == name) return outcome;
  }
  ThrowError(ErrorKind::kFormat, "`{}` is no outcome", name);
}

Json RateJson(const Rate& rate) {
  return {{"count", rate.count},
          {"of", rate.of},
          {"lower_95", rate.lower},
          {"upper_95", rate.upper},
          {"upper_95_one_sided", rate.upper_one_sided}};
}

Json ColumnsJson(const KillTable& table) {
  Json columns = Json::array();
  for (const KillTable::Column& column : table.columns) {
    columns.push_back({{"title", column.title},
                       {"rule", column.rule},
                       {"bugs_caught", RateJson(column.score)},
                       {"false_alarms", RateJson(column.false_alarms)}});
  }
  return columns;
}

Json CellsJson(const std::vector<KillCell>& cells) {
  Json array = Json::array();
  for (const KillCell& cell : cells) array.push_back(CellJson(cell));
  return array;
}

}  // namespace

std::string RenderKillMatrixJson(const KillMatrix& matrix) {
  Json json{{"schema_version", kKillMatrixSchemaVersion},
            {"question", matrix.question},
            {"score", RateJson(matrix.Score())},
            {"false_alarms", RateJson(matrix.FalseAlarms())},
            {"columns", ColumnsJson(MakeKillTable(matrix))},
            {"levels", matrix.levels},
            {"peers", matrix.peers},
            {"reference_seconds", matrix.reference_seconds}};
  json["mutants"] = Json::array();
  for (const KillRow& row : matrix.rows) {
    json["mutants"].push_back({{"name", row.name},
                               {"group", row.group},
                               {"class", ClassName(row.kind)},
                               {"models", row.models},
                               {"link", row.link},
                               {"caught", row.Caught()},
                               {"mlperf_accepts", row.mlperf_accepts},
                               {"cells", CellsJson(row.cells)}});
  }
  json["benign"] = CellsJson(matrix.benign);
  return json.dump(1) + "\n";
}

std::string RenderKillCell(const KillCell& cell, const std::string& name) {
  Json json = CellJson(cell);
  json["cell"] = name;
  return json.dump() + "\n";
}

KillCell ParseKillCell(const std::string& text, const std::string& name,
                       const std::string& file) {
  try {
    const Json json = Json::parse(text);
    if (json.at("cell").get<std::string>() != name) {
      ThrowError(ErrorKind::kFormat, "it is cell {}, not {}",
                 json.at("cell").get<std::string>(), name);
    }
    KillCell cell;
    json.at("seed").get_to(cell.seed);
    for (const Json& level : json.at("levels")) {
      cell.levels.push_back(level.is_null()
                                ? std::optional<gate::Outcome>()
                                : OutcomeByName(level.get<std::string>()));
    }
    cell.verdict = OutcomeByName(json.at("verdict").get<std::string>());
    json.at("finding").get_to(cell.finding);
    json.at("peer_accepts").get_to(cell.peer_accepts);
    for (const Json& loss : json.at("loss_nats")) {
      cell.loss_nats.push_back(loss.is_null()
                                   ? std::numeric_limits<double>::quiet_NaN()
                                   : loss.get<double>());
    }
    json.at("bit_equal").get_to(cell.bit_equal);
    json.at("first_different_step").get_to(cell.first_different_step);
    json.at("seconds").get_to(cell.seconds);
    return cell;
  } catch (const std::exception& error) {
    ThrowError(ErrorKind::kFormat,
               "{}: it is no cell of this kill matrix: {}. Remove the file; "
               "the cell is then computed again.",
               file, error.what());
  }
}

}  // namespace isoloss::qualification
