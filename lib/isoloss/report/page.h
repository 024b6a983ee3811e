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

/// What the browser may load and run of a page, as a Content-Security-Policy:
/// nothing but what is in it, and of a live page the data from where it came.
std::string PagePolicy(bool live);

/// The page of PageData's object: style, data, chart.js and the scripts of
/// lib/isoloss/report/page in it, under PagePolicy (live: data.live is not
/// null). No text of `data` is HTML: the title is escaped, and all
/// else is JSON, in which `<` is escaped.
std::string RenderPage(const document::Json& data);

}  // namespace isoloss::report
