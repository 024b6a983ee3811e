// A document as JSON for programs, and numbers in JSON that is always valid.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "isoloss/document/document.h"

namespace isoloss::document {

// Keys keep the order in which they are written.
using Json = nlohmann::ordered_json;

/// A number that is not finite is null, with its name ("nan", "inf", "-inf") in
/// a second key ending in `_text`; one that is not there is null.
void PutNumber(Json& object, const std::string& key, double value);
void PutNumber(Json& object, const std::string& key,
               const std::optional<double>& value);

void PutInteger(Json& object, const std::string& key,
                const std::optional<int64_t>& value);

/// Returns an object of the members and of the tables with a key, in their
/// order. Numbers are as PutNumber puts them. In a list a number that is not
/// finite is null.
Json ToJson(const Document& document);

/// Returns the same as indented text. Bytes that are no UTF-8 are replaced.
std::string RenderJson(const Document& document);

}  // namespace isoloss::document
