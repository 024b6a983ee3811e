// Pieces of SVG pictures.
#pragma once

#include <string>
#include <string_view>

namespace isoloss::report {

/// A text element; `attributes` as they stand in it.
std::string SvgText(double x, double y, std::string_view text,
                    std::string_view attributes = "");

/// The whole picture, on white: `body` in units of a pixel.
std::string SvgPicture(int width, int height, std::string_view body);

}  // namespace isoloss::report
