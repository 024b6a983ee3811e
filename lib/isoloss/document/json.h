// Converts a document to JSON for programs. The JSON is valid whatever its
// numbers are.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "isoloss/document/document.h"

namespace isoloss::document {

// Keys keep the order in which they are written.
using Json = nlohmann::ordered_json;

/// Puts null for a number that is not finite, and its name ("nan", "inf",
/// "-inf") under a second key that ends in `_text`. A missing number is null,
/// too.
void PutNumber(Json& object, const std::string& key, double value);
void PutNumber(Json& object, const std::string& key,
               const std::optional<double>& value);

void PutInteger(Json& object, const std::string& key,
                const std::optional<int64_t>& value);

/// Returns an object of the members and of the tables with a key, in their
/// order. Numbers are as PutNumber puts them. In a list a number that is not
/// finite is null.
Json ToJson(const Document& document);

/// Returns ToJson's object as indented text. Bytes that are no UTF-8 are
/// replaced.
std::string RenderJson(const Document& document);

}  // namespace isoloss::document
