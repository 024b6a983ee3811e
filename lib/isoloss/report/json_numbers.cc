#include "isoloss/report/json_numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace isoloss::report {

void PutNumber(Json& object, const std::string& key, double value) {
  if (std::isfinite(value)) {
    object[key] = value;
    return;
  }
  object[key] = nullptr;
  object[key + "_text"] = std::isnan(value) ? "nan" : fmt::format("{}", value);
}

void PutNumber(Json& object, const std::string& key,
               const std::optional<double>& value) {
  if (value) {
    PutNumber(object, key, *value);
  } else {
    object[key] = nullptr;
  }
}

Json IntervalJson(double estimate, double lower, double upper) {
  Json json = Json::object();
  PutNumber(json, "estimate", estimate);
  PutNumber(json, "lower", lower);
  PutNumber(json, "upper", upper);
  return json;
}

void PutInteger(Json& object, const std::string& key,
                const std::optional<int64_t>& value) {
  object[key] = value ? Json(*value) : Json(nullptr);
}

}  // namespace isoloss::report
