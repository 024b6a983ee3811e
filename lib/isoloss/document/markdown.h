// A result as Markdown: a comment on a pull request, or a step's summary.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "isoloss/document/result.h"

namespace isoloss::document {

/// The first line of every such text of ours, by which a bot finds its comment.
inline constexpr std::string_view kMarkdownFirstLine = "<!-- isoloss -->\n";

/// GitHub takes comments of 65,536 characters.
inline constexpr size_t kMostMarkdown = 65000;

/// For each result the verdict, why, what it could have seen, what it holds
/// for, what to do next, and a table of its checks, the severest first; those
/// that pass or were skipped are folded up.
///
/// Bounds   at most kMostMarkdown bytes; says what was left out.
/// Special  names and paths are `<code>`; in them and in all other text each
///          character that could mark something up is a numeric entity. A
///          zero-width space behind `@`, `#` and `!`, and within `://` and
///          `www.`, keeps GitHub and GitLab from making mentions, references
///          and links of text.
std::string RenderMarkdown(const Report& report);

}  // namespace isoloss::document
