#include "isoloss/document/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>

#include "isoloss/document/text_layout.h"

namespace isoloss::document {
namespace {

const char* CodeOf(Tone tone) {
  switch (tone) {
    case Tone::kStrong:
      return kBold;
    case Tone::kQuiet:
      return kDim;
    case Tone::kGood:
      return kGreen;
    case Tone::kDoubtful:
      return kYellow;
    case Tone::kBad:
      return kRed;
    case Tone::kPlain:
      break;
  }
  return nullptr;
}

/// Returns the columns that a text takes on a terminal if each character takes
/// one.
size_t ColumnsOf(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

struct ShownCell {
  std::string text;
  Tone tone = Tone::kPlain;
};

ShownCell CellOf(const Document& row, const Column& column) {
  ShownCell cell{.text = "-"};
  for (const Part& part : row.parts()) {
    if (const auto* field = std::get_if<Field>(&part);
        field != nullptr && field->label == column.label) {
      return {field->text, field->tone};
    }
    const auto* member = std::get_if<Member>(&part);
    if (member == nullptr || member->key != column.key) continue;
    if (const auto* value = std::get_if<Value>(&member->content)) {
      cell.text = ValueText(*value, column.format);
    }
  }
  return cell;
}

class TextRenderer {
 public:
  explicit TextRenderer(const TextStyle& style) : style_(style) {}

  void Render(const Document& document) {
    for (const Part& part : document.parts()) {
      std::visit([this](const auto& of) { Put(of); }, part);
    }
  }

  std::string Take() && { return std::move(text_); }

 private:
  void Put(const Member& member) {
    const auto* objects = std::get_if<std::vector<Document>>(&member.content);
    if (objects == nullptr) return;
    for (const Document& object : *objects) Render(object);
  }

  void Put(const Title& title) {
    if (!text_.empty()) text_ += "\n";
    text_ += Paint(title.text, kBold, style_) + "\n";
  }

  void Put(const Line& line) {
    const auto indent = static_cast<size_t>(line.indent);
    text_.append(indent, ' ');
    text_ += Paint(line.lead, CodeOf(line.tone), style_);
    text_ += line.label;
    const size_t used = indent + ColumnsOf(line.lead) + ColumnsOf(line.label);
    text_ += line.hang ? Wrap(line.text, used, *line.hang, style_) : line.text;
    text_ += "\n";
  }

  void Put(const Field& field) {
    text_ += FieldLine(field.label.c_str(), field.text, style_);
  }

  void Put(const Chart& chart) {
    if (!chart.title.empty()) {
      text_ += "\n" + Paint(chart.title, kBold, style_);
      const std::string legend = LegendOf(chart, style_);
      text_ += legend.empty() ? "\n" : fmt::format("   {}\n", legend);
    }
    const auto lines = DrawChart(chart, style_);
    text_ += lines.empty() ? "  no finite value to draw\n"
                           : fmt::format("{}\n", fmt::join(lines, "\n"));
  }

  void Put(const Table& table) {
    std::vector<std::vector<ShownCell>> rows;
    if (table.has_head) {
      auto& head = rows.emplace_back();
      for (const Column& column : table.columns) head.push_back({column.label});
    }
    for (const Document& row : table.rows) {
      auto& cells = rows.emplace_back();
      for (const Column& column : table.columns) {
        cells.push_back(CellOf(row, column));
      }
    }
    for (const std::vector<ShownCell>& row : rows) PutRow(table, rows, row);
  }

  void PutRow(const Table& table,
              const std::vector<std::vector<ShownCell>>& rows,
              const std::vector<ShownCell>& row) {
    std::string line(static_cast<size_t>(table.indent), ' ');
    for (size_t i = 0; i < table.columns.size(); ++i) {
      const Column& column = table.columns[i];
      auto width = static_cast<size_t>(column.width);
      for (const auto& other : rows) {
        width = std::max(width, ColumnsOf(other[i].text));
      }
      if (i > 0) line.append(static_cast<size_t>(table.gap), ' ');
      const size_t columns = ColumnsOf(row[i].text);
      const std::string shown = Paint(row[i].text, CodeOf(row[i].tone), style_);
      if (!column.is_text) line.append(width - columns, ' ');
      line += shown;
      if (column.is_text) line.append(width - columns, ' ');
    }
    text_ += line.erase(line.find_last_not_of(' ') + 1) + "\n";
  }

  TextStyle style_;
  std::string text_;
};

}  // namespace

std::string ValueText(const Value& value, const std::string& format) {
  return std::visit(
      [&](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::monostate>) {
          return "-";
        } else if constexpr (requires { held.size(); } &&
                             !std::is_same_v<Held, std::string>) {
          std::vector<std::string> texts;
          for (const auto& element : held) {
            texts.push_back(ValueText(element, format));
          }
          return fmt::format("{}", fmt::join(texts, ", "));
        } else if constexpr (std::is_same_v<Held, double>) {
          return fmt::format(fmt::runtime("{:" + format + "}"), held);
        } else {
          return fmt::format("{}", held);
        }
      },
      value.held());
}

std::string RenderText(const Document& document, const TextStyle& style) {
  TextRenderer renderer(style);
  renderer.Render(document);
  return std::move(renderer).Take();
}

std::string RenderText(const Document& document) {
  constexpr TextStyle kUnbroken{.width = 1'000'000};
  return RenderText(document, kUnbroken);
}

}  // namespace isoloss::document
