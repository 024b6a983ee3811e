// Replaces characters of text that mean something in HTML, SVG and other XML.
#pragma once

#include <string>
#include <string_view>

namespace isoloss::document {

/// Returns `text` as content of an element or as value of an attribute in
/// double quotes: `&`, `<`, `>` and `"` are entities. Control characters stay
/// (base/printable.h).
std::string EscapedMarkup(std::string_view text);

}  // namespace isoloss::document
