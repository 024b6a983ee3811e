// Renders a result as Markdown for a comment on a pull request or a step's
// summary.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "isoloss/document/result.h"

namespace isoloss::document {

/// Every such text begins with this line, by which a bot finds its comment.
inline constexpr std::string_view kMarkdownFirstLine = "<!-- isoloss -->\n";

/// GitHub takes comments of 65,536 characters.
inline constexpr size_t kMostMarkdown = 65000;

/// Renders for each result the verdict, its reasons, what could have been
/// seen, where it holds, what to do next, and a table of its checks. The
/// severest checks come first; checks that pass or were skipped are folded up.
///
/// Bounds   at most kMostMarkdown bytes; the end says how much was left out.
/// Special  names and paths are `<code>`; in them and in all other text each
///          character that could mark something up is a numeric entity. A
///          zero-width space after `@`, `#` and `!`, and within `://` and
///          `www.`, keeps GitHub and GitLab from making mentions, references
///          and links of text.
std::string RenderMarkdown(const Report& report);

}  // namespace isoloss::document
