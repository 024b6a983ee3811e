// Writes a judgement as JSON for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// The version of the layout of verdict.json rises when a key changes its
/// meaning.
inline constexpr int64_t kVerdictSchemaVersion = 2;

/// Returns the judgement as a JSON object (docs/verdict.schema.json). A number
/// that is not finite is null, with its name ("nan", "inf", "-inf") in a second
/// key ending in `_text`, so that the text is valid JSON.
document::Json VerdictJson(const gate::Judgement& judgement);

/// Returns the same as indented text.
std::string RenderJson(const gate::Judgement& judgement);

/// Returns the text of RenderJson for one judgement. Several judgements, one
/// for each candidate arm, are the list `verdicts` of an object that has the
/// severest outcome and exit code. Requires at least one.
std::string RenderJson(std::span<const gate::Judgement> judgements);

/// Digests all keys of such an object except `digest`. Readers know by the
/// digest that nobody edited the object.
std::string VerdictDigest(document::Json verdict);

/// Writes RenderJson to `path`, completely or not at all.
/// Errors   IoError naming the path and the system's reason.
void WriteJson(std::span<const gate::Judgement> judgements,
               const std::filesystem::path& path);

}  // namespace isoloss::report
