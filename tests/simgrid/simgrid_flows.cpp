// The flows of a case through SimGrid (3.32 or newer of Debian), for comparison: finishes and the seconds they took.
//
//   simgrid-flows CASE [Full|Lazy]
//
// CASE is text: "hosts H links L routes R flows F", then L bandwidths. R lines "source destination n link...". F lines
// "source destination bytes start", start with the route's latency in it, ascending. Prints the seconds of the simulation alone,
// then every flow's finish in the order of the case.
//
// SimGrid weights shares by 1 / latency of the route, so its links get none. Precisions are those of the reference cases.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

struct flow {
  int source, destination;
  double bytes, start, finish;
};

static std::vector<flow> flows;
static std::vector<sg4::Host *> hosts;

/* Starts every flow at its time, then waits for all. */
static void drive() {
  std::vector<sg4::CommPtr> comms;
  for (auto &f : flows) {
    sg4::this_actor::sleep_until(f.start);
    auto comm = sg4::Comm::sendto_init(hosts[f.source], hosts[f.destination]);
    comm->set_payload_size(static_cast<uint64_t>(f.bytes));
    comm->start();
    comms.push_back(comm);
  }
  for (size_t i = 0; i < flows.size(); i++) {
    comms[i]->wait();
    flows[i].finish = comms[i]->get_finish_time();
  }
}

static void fail(const char *what) {
  std::cerr << "simgrid-flows: " << what << "\n";
  std::exit(2);
}

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3 || argv[1][0] == '-')
    fail("usage: simgrid-flows CASE [Full|Lazy]");
  std::string optim = std::string("--cfg=network/optim:") + (argc == 3 ? argv[2] : "Full");
  std::vector<std::string> words = {argv[0], optim, "--cfg=network/model:CM02", "--cfg=network/latency-factor:1",
                                    "--cfg=network/bandwidth-factor:1", "--cfg=network/weight-S:0",
                                    "--cfg=network/TCP-gamma:0", "--cfg=network/crosstraffic:0",
                                    "--cfg=maxmin/precision:1e-9", "--cfg=surf/precision:1e-12",
                                    "--log=root.thres:error"};
  std::vector<char *> arguments;
  for (auto &word : words)
    arguments.push_back(word.data());
  int n_arguments = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  std::ifstream in(argv[1]);
  std::string word;
  int n_hosts, n_links, n_routes, n_flows;
  if (!(in >> word >> n_hosts >> word >> n_links >> word >> n_routes >> word >> n_flows))
    fail("not a case");
  sg4::Engine engine(&n_arguments, arguments.data());
  auto *zone = sg4::create_full_zone("zone");
  for (int h = 0; h < n_hosts; h++)
    hosts.push_back(zone->create_host("h" + std::to_string(h), 1e9)->seal());
  std::vector<const sg4::Link *> links;
  for (int l = 0; l < n_links; l++) {
    double bandwidth;
    in >> bandwidth;
    links.push_back(zone->create_link("l" + std::to_string(l), bandwidth)->set_latency(0)->seal());
  }
  for (int r = 0; r < n_routes; r++) {
    int source, destination, n;
    in >> source >> destination >> n;
    std::vector<sg4::LinkInRoute> route;
    for (int i = 0; i < n; i++) {
      int link;
      in >> link;
      route.emplace_back(links.at(link));
    }
    zone->add_route(hosts.at(source)->get_netpoint(), hosts.at(destination)->get_netpoint(), nullptr, nullptr, route,
                    false);
  }
  zone->seal();
  for (int f = 0; f < n_flows; f++) {
    flow of{};
    in >> of.source >> of.destination >> of.bytes >> of.start;
    flows.push_back(of);
  }
  if (!in)
    fail("the case ends early");
  sg4::Actor::create("driver", hosts[0], drive);
  auto begin = std::chrono::steady_clock::now();
  engine.run();
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%.9f\n", seconds.count());
  for (const auto &f : flows)
    std::printf("%.17g\n", f.finish);
  return 0;
}
