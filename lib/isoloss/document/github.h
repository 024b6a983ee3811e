// A result as annotations of GitHub Actions.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/document/result.h"

namespace isoloss::document {

/// GitHub shows no more of one step.
inline constexpr size_t kMostAnnotations = 10;

/// At most kMostAnnotations workflow commands, one a line, the severest first:
/// `::error title=...,file=...,line=1::...` for what is red, `::warning` for
/// what was noticed. Text can start no command of its own: line ends are
/// escaped, and what stands behind `::error ...::` is data.
std::string RenderGithubAnnotations(const Report& report);

/// From this line on to that of GithubResume the runner obeys no command, so
/// that no text of a log or a name can be one. `token` must be one that nobody
/// can guess.
std::string GithubStop(std::string_view token);
std::string GithubResume(std::string_view token);

}  // namespace isoloss::document
