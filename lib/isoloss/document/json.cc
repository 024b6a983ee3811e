#include "isoloss/document/json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace isoloss::document {
namespace {

Json ToJson(const Value& value) {
  return std::visit(
      [](const auto& held) -> Json {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::monostate>) {
          return nullptr;
        } else if constexpr (requires { held.size(); } &&
                             !std::is_same_v<Held, std::string>) {
          Json list = Json::array();
          for (const auto& element : held) {
            list.push_back(ToJson(Value(element)));
          }
          return list;
        } else if constexpr (std::is_same_v<Held, double>) {
          return std::isfinite(held) ? Json(held) : Json(nullptr);
        } else {
          return held;
        }
      },
      value.held());
}

Json ListJson(const std::vector<Document>& documents) {
  Json list = Json::array();
  for (const Document& document : documents) {
    list.push_back(document::ToJson(document));
  }
  return list;
}

void PutMember(const Member& member, Json& object) {
  const auto* value = std::get_if<Value>(&member.content);
  if (value == nullptr) {
    const auto& documents = std::get<std::vector<Document>>(member.content);
    object[member.key] = member.is_list ? ListJson(documents)
                                        : document::ToJson(documents.front());
    return;
  }
  if (const auto* number = std::get_if<double>(&value->held())) {
    PutNumber(object, member.key, *number);
  } else {
    object[member.key] = ToJson(*value);
  }
}

}  // namespace

void PutNumber(Json& object, const std::string& key, double value) {
  if (std::isfinite(value)) {
    object[key] = value;
    return;
  }
  object[key] = nullptr;
  object[key + "_text"] = std::isnan(value) ? "nan" : fmt::format("{}", value);
}

void PutNumber(Json& object, const std::string& key,
               const std::optional<double>& value) {
  if (value) {
    PutNumber(object, key, *value);
  } else {
    object[key] = nullptr;
  }
}

void PutInteger(Json& object, const std::string& key,
                const std::optional<int64_t>& value) {
  object[key] = value ? Json(*value) : Json(nullptr);
}

Json ToJson(const Document& document) {
  Json object = Json::object();
  for (const Part& part : document.parts()) {
    if (const auto* member = std::get_if<Member>(&part)) {
      PutMember(*member, object);
    } else if (const auto* table = std::get_if<Table>(&part);
               table != nullptr && !table->key.empty()) {
      object[table->key] = ListJson(table->rows);
    }
  }
  return object;
}

std::string RenderJson(const Document& document) {
  return ToJson(document).dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace isoloss::document
