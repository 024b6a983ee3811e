#include "isoloss/campaign/page_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::campaign {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// A connection whose two ends are in this thread: what is sent and received
/// waits in the kernel while the server sleeps.
class Client {
 public:
  explicit Client(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address),
                      sizeof(address)),
              0);
  }
  ~Client() { close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(std::string_view text) const {
    send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }

  /// All that is there.
  std::string Received() const {
    std::string all;
    char part[4096];
    ssize_t size = 0;
    while ((size = recv(socket_, part, sizeof(part), MSG_DONTWAIT)) > 0) {
      all.append(part, static_cast<size_t>(size));
    }
    return all;
  }

 private:
  int socket_;
};

class Serving : public ::testing::Test {
 protected:
  Serving()
      : server_(0,
                {.page =
                     [this] {
                       ++made_;
                       return std::make_shared<std::string>("<p>page</p>");
                     },
                 .data = [] { return std::make_shared<std::string>("{}"); }}) {
    std::smatch parts;
    const std::string address = server_.address();
    EXPECT_TRUE(std::regex_match(
        address, parts,
        std::regex("http://127\\.0\\.0\\.1:([0-9]+)(/[0-9a-f]{32}/)")));
    port_ = static_cast<uint16_t>(std::stoi(parts[1]));
    folder_ = parts[2];
  }

  std::string Host() const { return "127.0.0.1:" + std::to_string(port_); }

  std::string Answer(const std::string& request) {
    const Client client(port_);
    client.Send(request);
    EXPECT_TRUE(server_.Serve(0.2));
    return client.Received();
  }

  std::string AnswerTo(const std::string& method, const std::string& target,
                       const std::string& host) {
    return Answer(method + " " + target + " HTTP/1.1\r\nHost: " + host +
                  "\r\n\r\n");
  }

  int made_ = 0;
  PageServer server_;
  uint16_t port_ = 0;
  std::string folder_;
};

TEST_F(Serving, PageAndDataAreAllThereIs) {
  const std::string page = AnswerTo("GET", folder_, Host());
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\n\r\n<p>page</p>"));
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(AnswerTo("GET", folder_ + "data.json",
                       "localhost:" + std::to_string(port_)),
              HasSubstr("\r\n\r\n{}"));
  for (const std::string& target :
       {std::string("/"), folder_ + "x", folder_ + "../", folder_ + "?a",
        folder_.substr(0, folder_.size() - 2) + "/",
        std::string("/etc/passwd")}) {
    EXPECT_THAT(AnswerTo("GET", target, Host()), StartsWith("HTTP/1.1 404 "))
        << target;
  }
}

TEST_F(Serving, EveryAnswerForbidsWhatAPageMayNotDo) {
  for (const std::string& target : {folder_, std::string("/")}) {
    const std::string answer = AnswerTo("GET", target, Host());
    EXPECT_THAT(answer, HasSubstr("Cache-Control: no-store\r\n"));
    EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
    EXPECT_THAT(answer, ContainsRegex("Content-Security-Policy: default-src "
                                      "'none'; .*frame-ancestors 'none'\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr("Access-Control")));
  }
}

TEST_F(Serving, HeadGivesTheHeaderAlone) {
  const std::string answer = AnswerTo("HEAD", folder_, Host());
  EXPECT_THAT(answer, HasSubstr("Content-Length: 11\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(Serving, AnotherHostOrMethodIsRefused) {
  const std::string port = std::to_string(port_);
  for (const std::string& host :
       {std::string("evil.example"), "evil.example:" + port,
        std::string("127.0.0.1"), "localhost:1" + port,
        "127.0.0.1:" + port + ".", std::string()}) {
    EXPECT_THAT(AnswerTo("GET", folder_, host), StartsWith("HTTP/1.1 421 "))
        << host;
  }
  EXPECT_THAT(Answer("GET " + folder_ + " HTTP/1.0\r\n\r\n"),
              StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(Answer("GET " + folder_ + " HTTP/1.1\r\nHost: " + Host() +
                     "\r\nHost: evil.example\r\n\r\n"),
              StartsWith("HTTP/1.1 421 "));
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE"}) {
    EXPECT_THAT(AnswerTo(method, folder_, Host()), StartsWith("HTTP/1.1 405 "))
        << method;
  }
  EXPECT_EQ(made_, 0);
}

TEST_F(Serving, WhatIsNoRequestOrTooLongIsRefused) {
  EXPECT_THAT(Answer("\x16\x03\x01 hello\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  // A reset may overtake the answer, since the rest was not read.
  const std::string all =
      Answer("GET " + folder_ + " HTTP/1.1\r\nHost: " + Host() +
             "\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n");
  EXPECT_THAT(all, AnyOf(IsEmpty(), StartsWith("HTTP/1.1 400 ")));
  EXPECT_THAT(Answer("POST " + folder_ + " HTTP/1.1\r\nHost: " + Host() +
                     "\r\nContent-Length: 5\r\n\r\nhello"),
              AnyOf(IsEmpty(), StartsWith("HTTP/1.1 400 ")));
  EXPECT_EQ(made_, 0);
}

TEST_F(Serving, SilentConnectionsKeepNobodyAway) {
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<Client>(port_));
    if (i % 2 == 1) silent.back()->Send("GET / HT");
  }

  EXPECT_THAT(AnswerTo("GET", folder_, Host()), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(Serving, APortThatIsTakenIsRefused) {
  try {
    const PageServer second(port_, {});
    FAIL() << "two servers listen at one port";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(port_)));
    EXPECT_THAT(error.what(), HasSubstr("--port"));
  }
}

}  // namespace
}  // namespace isoloss::campaign
