#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/report/history.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::PutNumber;

using compare::FigurePoint;
using compare::FigureSeries;
using compare::Movement;

Json PointJson(const FigurePoint& point, const FigureSeries& series) {
  Json json{
      {"commit", point.commit}, {"date", point.date}, {"seeds", point.seeds}};
  PutNumber(json, "mean", point.mean);
  json["movement"] = compare::MovementName(point.movement);
  json["moved"] = point.movement == Movement::kMoved;
  json["gradual"] = point.gradual;
  json["change"] = nullptr;
  if (point.shared_seeds > 0) {
    Json change{{"since", series.points[point.reference].commit},
                {"seeds", point.shared_seeds}};
    PutNumber(change, "mean", point.change.mean);
    PutNumber(change, "lower", point.change.lower);
    PutNumber(change, "upper", point.change.upper);
    json["change"] = std::move(change);
  }
  return json;
}

}  // namespace

std::string RenderHistoryJson(const History& history) {
  Json json{{"experiment", history.experiment},
            {"order", history.in_git_order ? "git" : "file"},
            {"alpha", history.options.alpha},
            {"tolerance", history.options.tolerance},
            {"commits", history.commits},
            {"notes", history.notes},
            {"moved", Json::array()},
            {"series", Json::array()}};
  for (const FigureSeries& series : history.series) {
    const compare::Figure& figure = compare::kFigures[series.figure];
    Json points = Json::array();
    for (const FigurePoint& point : series.points) {
      points.push_back(PointJson(point, series));
      if (point.movement != Movement::kMoved) continue;
      const auto subject = history.subjects.find(point.commit);
      json["moved"].push_back({{"commit", point.commit},
                               {"subject", subject == history.subjects.end()
                                               ? Json(nullptr)
                                               : Json(subject->second)},
                               {"arm", series.arm},
                               {"figure", figure.name}});
    }
    json["series"].push_back(
        {{"arm", series.arm},
         {"figure", figure.name},
         {"unit", figure.unit},
         {"change_unit", figure.relative ? "%" : figure.unit},
         {"points", std::move(points)}});
  }
  return json.dump(1) + "\n";
}

}  // namespace isoloss::report
