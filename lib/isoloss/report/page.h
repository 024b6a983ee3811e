// The report page: one HTML file that needs no other.
#pragma once

#include <string>
#include <string_view>

#include "isoloss/document/json.h"

namespace isoloss::report {

/// The first line of every page, by which a later one knows that it may replace
/// it.
inline constexpr std::string_view kPageFirstLine =
    "<!DOCTYPE html><!-- isoloss report -->\n";

/// The page of PageData's object: style, data, chart.js and the scripts of
/// lib/isoloss/report/page in it, under a
/// Content-Security-Policy that loads nothing else. No text of `data` is HTML:
/// the title is escaped, and all else is JSON, in which `<` is escaped.
std::string RenderPage(const document::Json& data);

}  // namespace isoloss::report
