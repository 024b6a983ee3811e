// Makes pieces of SVG pictures.
#pragma once

#include <string>
#include <string_view>

namespace isoloss::document {

/// Returns a text element, in which `attributes` stand unchanged.
std::string SvgText(double x, double y, std::string_view text,
                    std::string_view attributes = "");

/// The line goes from (x1, y1) to (x2, y2), rounded to tenths of a pixel.
std::string SvgLine(double x1, double y1, double x2, double y2,
                    std::string_view colour, std::string_view attributes = "");

/// Returns the whole picture on white. `body` is in units of a pixel.
std::string SvgPicture(int width, int height, std::string_view body);

}  // namespace isoloss::document
