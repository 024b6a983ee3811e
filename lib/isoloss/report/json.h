// Writes a judgement as JSON for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// Version of the layout of verdict.json; rises when a key changes its meaning.
inline constexpr int64_t kVerdictSchemaVersion = 2;

/// The judgement as a JSON object (docs/verdict.schema.json). A number that is
/// not finite is null, with its name ("nan", "inf", "-inf") in a second key
/// ending in `_text`, so that its text is valid JSON.
document::Json VerdictJson(const gate::Judgement& judgement);

/// Returns the same as indented text.
std::string RenderJson(const gate::Judgement& judgement);

/// As RenderJson of one judgement. Several, one for each candidate arm, are the
/// list `verdicts` of an object that has the severest outcome and exit code.
/// Requires at least one.
std::string RenderJson(std::span<const gate::Judgement> judgements);

/// Of all of such an object but its key `digest`, by which readers know that
/// nobody edited it.
std::string VerdictDigest(document::Json verdict);

/// Writes RenderJson to `path`, completely or not at all.
/// Errors   IoError naming the path and the system's reason.
void WriteJson(std::span<const gate::Judgement> judgements,
               const std::filesystem::path& path);

}  // namespace isoloss::report
