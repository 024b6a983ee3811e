// Renders a result as annotations of GitHub Actions.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/document/result.h"

namespace isoloss::document {

/// GitHub shows no more annotations of one step.
inline constexpr size_t kMostAnnotations = 10;

/// Returns at most kMostAnnotations workflow commands, one a line, the
/// severest first: `::error title=...,file=...,line=1::...` for red checks,
/// `::warning` for noticed ones. Text can start no command of its own: line
/// ends are escaped, and all text after `::error ...::` is data.
std::string RenderGithubAnnotations(const Report& report);

/// The runner obeys no command between this line and that of GithubResume, so
/// that no text of a log or a name can be one. `token` must be one that nobody
/// can guess.
std::string GithubStop(std::string_view token);
std::string GithubResume(std::string_view token);

}  // namespace isoloss::document
