#include "isoloss/document/svg.h"

#include <fmt/format.h>

#include "isoloss/document/markup.h"

namespace isoloss::document {

std::string SvgText(double x, double y, std::string_view text,
                    std::string_view attributes) {
  return fmt::format("<text x=\"{}\" y=\"{}\" {}>{}</text>\n", x, y, attributes,
                     EscapedMarkup(text));
}

std::string SvgLine(double x1, double y1, double x2, double y2,
                    std::string_view colour, std::string_view attributes) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
      "stroke=\"{}\" {}/>\n",
      x1, y1, x2, y2, colour, attributes);
}

std::string SvgPicture(int width, int height, std::string_view body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" "
      "height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n{2}</svg>\n",
      width, height, body);
}

}  // namespace isoloss::document
