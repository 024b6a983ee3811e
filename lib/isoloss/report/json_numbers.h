// Numbers in JSON that is always valid.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace isoloss::report {

// Keys keep the order in which they are written.
using Json = nlohmann::ordered_json;

/// A number that is not finite is null, with its name ("nan", "inf", "-inf") in
/// a second key ending in `_text`; one that is not there is null.
void PutNumber(Json& object, const std::string& key, double value);
void PutNumber(Json& object, const std::string& key,
               const std::optional<double>& value);

/// {"estimate", "lower", "upper"}. The confidence is told once, at the top.
Json IntervalJson(double estimate, double lower, double upper);

void PutInteger(Json& object, const std::string& key,
                const std::optional<int64_t>& value);

}  // namespace isoloss::report
