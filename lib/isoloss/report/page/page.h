// Makes the report page, a single HTML file that needs no further file.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/document/json.h"

namespace isoloss::report {

/// The first line of every page tells a later call that it may replace the
/// page.
inline constexpr std::string_view kPageFirstLine =
    "<!DOCTYPE html><!-- isoloss report -->\n";

/// Returns the page of PageData's object. It contains style, data, chart.js and
/// the scripts of lib/isoloss/report/page, under a Content-Security-Policy that
/// loads nothing more. No text of `data` is HTML: the title is escaped, and the
/// rest is JSON, in which `<` is escaped.
std::string RenderPage(const document::Json& data);

}  // namespace isoloss::report
