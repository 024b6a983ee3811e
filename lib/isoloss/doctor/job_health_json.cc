#include "isoloss/doctor/job_health_json.h"

#include <nlohmann/json.hpp>

#include "isoloss/base/printable.h"
#include "isoloss/document/json.h"

namespace isoloss::doctor {
namespace {

using document::Json;

Json TextsJson(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(Printable(text));
  return list;
}

Json LinkJson(const PeerLink& link) {
  return {{"peer", link.peer},
          {"bytes_per_second", link.bytes_per_second},
          {"latency_seconds", link.seconds},
          {"clock_ahead_seconds", link.clock_ahead},
          {"problem", Printable(link.problem)}};
}

Json ProcessJson(const ProcessHealth& process) {
  const NodeHealth& health = process.health;
  Json links = Json::array();
  for (const PeerLink& link : process.links) links.push_back(LinkJson(link));
  return {{"process", process.process},
          {"node", Printable(process.node)},
          {"commit", Printable(process.commit)},
          {"reported", process.reported},
          {"trainings", health.numerics.trainings},
          {"memory",
           {{"available_bytes", health.memory.available_bytes},
            {"bytes_per_second", health.memory.bytes_per_second}}},
          {"disk",
           {{"free_bytes", health.disk.free_bytes},
            {"write_bytes_per_second", health.disk.write_bytes_per_second},
            {"read_bytes_per_second", health.disk.read_bytes_per_second},
            {"clock_ahead_seconds", health.disk.seconds_ahead}}},
          {"links", std::move(links)},
          {"problems", TextsJson(process.problems)},
          {"notes", TextsJson(process.notes)}};
}

}  // namespace

std::string ProcessToText(const ProcessHealth& process) {
  return ProcessJson(process).dump(-1, ' ', false,
                                   Json::error_handler_t::replace);
}

bool ProcessFromText(const std::string& text, ProcessHealth& process) {
  try {
    const Json json = Json::parse(text);
    const Json& memory = json.at("memory");
    const Json& disk = json.at("disk");
    ProcessHealth read{.process = json.at("process").get<int>(),
                       .node = json.at("node").get<std::string>(),
                       .commit = json.at("commit").get<std::string>(),
                       .reported = json.at("reported").get<bool>()};
    read.health.numerics.trainings = json.at("trainings").get<int>();
    read.health.memory = {memory.at("available_bytes").get<double>(),
                          memory.at("bytes_per_second").get<double>()};
    read.health.disk = {disk.at("free_bytes").get<double>(),
                        disk.at("write_bytes_per_second").get<double>(),
                        disk.at("read_bytes_per_second").get<double>(),
                        disk.at("clock_ahead_seconds").get<double>()};
    for (const Json& link : json.at("links")) {
      read.links.push_back(
          {.peer = link.at("peer").get<int>(),
           .bytes_per_second = link.at("bytes_per_second").get<double>(),
           .seconds = link.at("latency_seconds").get<double>(),
           .clock_ahead = link.at("clock_ahead_seconds").get<double>(),
           .problem = link.at("problem").get<std::string>()});
    }
    read.problems = json.at("problems").get<std::vector<std::string>>();
    read.notes = json.at("notes").get<std::vector<std::string>>();
    process = std::move(read);
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

Json JobHealthJson(const JobHealth& job) {
  Json processes = Json::array();
  for (const ProcessHealth& process : job.processes) {
    processes.push_back(ProcessJson(process));
  }
  Json sick = Json::array();
  for (const SickNode& node : SickNodesToName(job)) {
    sick.push_back(
        {{"node", Printable(node.node)}, {"reason", Printable(node.reason)}});
  }
  return {{"healthy", job.healthy()},
          {"sick", std::move(sick)},
          {"processes", std::move(processes)},
          {"seconds", job.seconds}};
}

}  // namespace isoloss::doctor
