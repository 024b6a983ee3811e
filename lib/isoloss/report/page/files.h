// Holds the files of lib/isoloss/report/page and chart.js, as the build put
// them into the program (lib/cmake/EmbedPage.cmake).
#pragma once

#include <span>
#include <string_view>

namespace isoloss::report::page_files {

std::string_view Html();
std::string_view Style();
/// Returns chart.js first, then the page's own scripts in their order.
std::span<const std::string_view> Scripts();

}  // namespace isoloss::report::page_files
