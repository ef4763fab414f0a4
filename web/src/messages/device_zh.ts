/**
 * The device's own sentences, as its sources have them, in Simplified Chinese.
 *
 * `{name}` is shown as it comes, `{n}` is a number, `{>reason}` holds more of the device's words;
 * `(s)` may be missing. The first that fits counts: what is general comes last.
 */
export const deviceZh: Readonly<Record<string, string>> = {
  // What was done.
  "rule for {ip} created": "已添加 {ip} 的规则",
  "rule for {ip} saved": "已保存 {ip} 的规则",
  "rule for {ip} enabled": "已启用 {ip} 的规则",
  "rule for {ip} disabled": "已停用 {ip} 的规则",
  "rule for {ip} deleted": "已删除 {ip} 的规则",
  "node {name} created": "已添加节点 {name}",
  "node {name} saved": "已保存节点 {name}",
  "node {name} deleted": "已删除节点 {name}",
  "line {name} created": "已添加线路 {name}",
  "line {name} saved": "已保存线路 {name}",
  "proxy service {name} created": "已添加代理服务 {name}",
  "proxy service {name} saved": "已保存代理服务 {name}",
  "proxy service {name} deleted": "已删除代理服务 {name}",
  "proxy service {name} enabled": "已启用代理服务 {name}",
  "proxy service {name} disabled": "已停用代理服务 {name}",
  "{n} rule(s)": "{n} 条规则",
  "{n} node(s)": "{n} 个节点",
  "{n} line(s)": "{n} 条线路",
  "{n} proxy service(s)": "{n} 个代理服务",
  "whitelist saved": "已保存白名单",
  "settings saved": "已保存设置",
  "stopped: every client is blocked": "已停止：所有客户端都被阻断",
  "started: the rules apply": "已启动：规则生效",
  "opened: no rule applies, every client goes out directly":
    "已放行：规则不生效，所有客户端直接出网",
  "backup restored: {>a}, {>b}, {>c}, {>d}": "已恢复备份：{a}、{b}、{c}、{d}",
  "logged out": "已退出登录",
  "logged in": "已登录",
  "the console's password is chosen": "已设置控制台密码",
  "password changed; every other session has ended": "密码已修改，其他会话均已结束",
  "session {id} ended": "会话 {id} 已结束",
  "{n} other session(s) ended": "已结束其他 {n} 个会话",
  "API token shown": "已查看 API 令牌",
  "API token reset; the old one does not count any more": "API 令牌已重置，旧令牌已失效",
  "license {serial} installed": "已安装许可证 {serial}",
  // Connections to the device.
  "{address} has {n} connections to the device, as many as an address may have":
    "{address} 与本设备的连接已达单个地址的上限（{n} 个）",
  "{network} has {n} connections to the device, as many as strangers may have":
    "网段 {network} 与本设备的未登录连接已达上限（{n} 个）",
  "strangers have {n} connections to the device, as many as they may have":
    "与本设备的未登录连接已达上限（{n} 个）",
  "there are {n} connections to the device, as many as there may be":
    "与本设备的连接已达上限（{n} 个）",
  "the console's password is being guessed from {network}": "有人从 {network} 猜测控制台密码",
  // Who did it.
  token: "令牌",
  "session {id}": "会话 {id}",

  // Why a line is not online.
  waiting: "等待拨号",
  "{server} is being dialled": "正在拨号 {server}",
  "the line is disabled": "线路已停用",
  "the data plane has not told of it yet": "尚未收到线路状态",
  "the server takes no kind of password that this line may use": "服务器不接受本线路可用的认证方式",
  "the server refused the user name or password": "服务器拒绝了用户名或密码",
  "the server refused the user name or password: {words}": "服务器拒绝了用户名或密码：{words}",
  "the server does not ask for MS-CHAPv2, without which PPTP is not encrypted":
    "服务器未使用 MS-CHAPv2，PPTP 无法加密",
  "the server does not encrypt PPTP with 128 bits (MPPE)": "服务器不支持 PPTP 的 128 位加密（MPPE）",
  "the kernel cannot encrypt PPTP: it has no module ppp_mppe":
    "内核无法加密 PPTP：缺少模块 ppp_mppe",
  "the server does not know the password itself, and may be another than it should be":
    "服务器自己不知道密码，可能不是应连接的服务器",
  "the server does not answer the login": "服务器对登录没有响应",
  "the server insists on EAP, by which lines do not log in": "服务器只接受 EAP 认证，线路不支持 EAP",
  "the server wants MPPE inside L2TP, which egressd does not do":
    "服务器要求在 L2TP 内使用 MPPE 加密，egressd 不支持",
  "the server wants a secret of L2TP's own, beside IPsec's, which lines do not have":
    "服务器要求 L2TP 自身的隧道密钥（不是 IPsec 密钥），线路没有这个字段",
  "the account may still be in use at the server": "账号在服务器上可能仍被占用",
  "the account may still be in use at the server: {words}": "账号在服务器上可能仍被占用：{words}",
  "what is sent to the server comes back unchanged": "发给服务器的数据原样返回（环路）",
  "the server gives both ends of the line one address, {address}":
    "服务器给线路两端分配了同一个地址 {address}",
  "the PPTP server takes the call by TCP, but no GRE comes from it: something on the way drops IP protocol 47":
    "PPTP 服务器通过 TCP 接受了呼叫，但收不到它的 GRE：途中有设备丢弃 IP 协议 47",
  "the L2TP server takes the call, but no PPP comes from it": "L2TP 服务器接受了呼叫，但收不到它的 PPP",
  "the L2TP server does not answer the call": "L2TP 服务器对呼叫没有响应",
  "the PPTP server takes no call of this line": "PPTP 服务器不接受本线路的呼叫",
  "the PPTP server takes no call of this line: {words}": "PPTP 服务器不接受本线路的呼叫：{words}",
  "the PPTP server ended the call": "PPTP 服务器结束了呼叫",
  "the server closed the connection for administrative reasons": "服务器因管理原因关闭了连接",
  "the server has no room for the call at the moment": "服务器暂时没有空位接受呼叫",
  "the server has no room for the call": "服务器没有空位接受呼叫",
  "the call was not set up in the time that the server gives": "呼叫没有在服务器规定的时间内建立",
  "the server has a tunnel of this line already": "服务器已有本线路的隧道",
  "the server does not let this line have a tunnel": "服务器不允许本线路建立隧道",
  "the server speaks another version of L2TP": "服务器使用另一个 L2TP 版本",
  "the server is being shut down": "服务器正在关机",
  "the server stopped answering": "服务器停止响应",
  "the server gave no IP address": "服务器没有分配 IP 地址",
  "the server hands out {address}, {>whose}": "服务器分配的地址 {address} {whose}，不能使用",
  "which is nobody's address": "不是有效的主机地址",
  "which is in the LAN {name}": "属于局域网 {name}",
  "which is an address of {name}": "是接口 {name} 的地址",
  "which is the gateway of {name}": "是接口 {name} 的网关",
  "which is the address of a VPN server": "是 VPN 服务器的地址",
  "which is the address of a resolver": "是 DNS 服务器的地址",
  "the server ended the line": "服务器断开了线路",
  "the server ended the line: {words}": "服务器断开了线路：{words}",
  "the server closed the connection": "服务器关闭了连接",
  "the server closed the connection: {words}": "服务器关闭了连接：{words}",
  "no PPTP server answers at {server}: {words}": "PPTP 服务器 {server} 无响应：{words}",
  "no PPTP server answers at {server}": "PPTP 服务器 {server} 无响应",
  "no L2TP server answers at {server} port {port} through IPsec: something on the way may drop ESP (IP protocol 50), and UDP is tried in its place":
    "IPsec 已建立，但 L2TP 服务器 {server} 端口 {port} 无响应：途中可能有设备丢弃 ESP（IP 协议 50），下次改用 UDP 封装",
  "no L2TP server answers at {server} port {port}, neither by ESP nor by ESP in UDP":
    "IPsec 已建立，但 L2TP 服务器 {server} 端口 {port} 无响应，ESP 和 UDP 封装的 ESP 都不通",
  "no L2TP server answers at {server} port {port} through IPsec":
    "IPsec 已建立，但 L2TP 服务器 {server} 端口 {port} 无响应",
  "no L2TP server answers at {server} port {port}": "L2TP 服务器 {server} 端口 {port} 无响应",
  "no IPsec server answers at {server}": "IPsec 服务器 {server} 无响应",
  "IPsec with {server} took too long": "与 {server} 的 IPsec 协商超时",
  "the server refused the IPsec secret": "服务器拒绝了 IPsec 密钥",
  "the server accepts none of the IPsec encryptions offered": "服务器不接受任何可用的 IPsec 加密方式",
  "the server does not let this address use L2TP over IPsec":
    "服务器不允许此地址使用 L2TP over IPsec",
  "the server does not answer once the IPsec secret is used: it is wrong, or something on the way drops UDP port 4500":
    "使用 IPsec 密钥后服务器无响应：密钥错误，或途中有设备丢弃 UDP 端口 4500",
  "the server answers with an IPsec encryption that was not offered": "服务器选择了未提供的 IPsec 加密方式",
  "the server ended the IPsec association": "服务器断开了 IPsec 连接",
  "{encryption}; weak: {parts}": "{encryption}；较弱：{parts}",
  "the server refused IPsec: {words}": "服务器拒绝了 IPsec：{words}",
  "the IPsec association ended": "IPsec 连接已断开",
  "{server} took too long to set the line up": "{server} 建立线路超时",
  "the server's name {host} cannot be resolved": "无法解析服务器域名 {host}",
  "there is {>missing} on {interface} to reach {server} by":
    "接口 {interface} {missing}，无法到达 {server}",
  "there is {>missing} to reach {server} by": "{missing}，无法到达 {server}",
  "no route": "没有路由",
  "no address": "没有地址",
  "packets do not reach {server} by {interface}: {>why}":
    "数据包不能经 {interface} 到达 {server}：{why}",
  "there is no route": "没有路由",
  "they would leave by {interface}": "会从 {interface} 出去",
  "the running kernel cannot do {what}: it has no module {module}; Debian's linux-image-amd64 has it":
    "当前内核不支持 {what}：缺少模块 {module}，Debian 的 linux-image-amd64 带有它",
  "the kernel cannot do IPsec (module esp4): {words}": "内核不支持 IPsec（模块 esp4）：{words}",
  "the IKE daemon failed: {words}": "IKE 程序出错：{words}",
  "the IKE daemon does not start: {words}": "IKE 程序无法启动：{words}",
  "programs are missing: {command}": "缺少程序：{command}",
  "its daemon ended": "拨号程序已退出",
  "its daemon ended: {words}": "拨号程序已退出：{words}",
  "it could not be started: {words}": "无法启动：{words}",

  // What is blocked, and why.
  "{n} client of {>targets} is blocked: {>reason}": "{targets} 的 {n} 个客户端被阻断：{reason}",
  "{n} clients of {>targets} are blocked: {>reason}": "{targets} 的 {n} 个客户端被阻断：{reason}",
  "{n} client of {>targets} cannot resolve names: {>reason}":
    "{targets} 的 {n} 个客户端无法解析域名：{reason}",
  "{n} clients of {>targets} cannot resolve names: {>reason}":
    "{targets} 的 {n} 个客户端无法解析域名：{reason}",
  "clients without a rule are blocked: {>reason}": "没有规则的客户端被阻断：{reason}",
  "the whitelist's destinations are blocked: {>reason}": "白名单目标被阻断：{reason}",
  "the WAN {name} does not work: {>reason}": "WAN {name} 不可用：{reason}",
  "there are {n} reasons": "共有 {n} 种原因",
  "they lead nowhere (their target is gone, disabled, or cannot be dialled)":
    "目标无法到达（已删除、已停用或无法连接）",
  "there is no LAN": "没有局域网",
  "{address} is in none of the LANs' networks ({networks})":
    "{address} 不属于任何局域网网段（{networks}）",
  "the device has no default route": "设备没有默认路由",
  "the interface {name} of the device's default route is down":
    "设备默认路由的接口 {name} 未连接",
  "the device's default route leads by the line {name}": "设备的默认路由指向线路 {name}",
  "the device's default route leads by {name}, which is no WAN":
    "设备的默认路由指向 {name}，而它不是 WAN",
  "the interface {name} has no gateway": "接口 {name} 没有网关",
  "the gateway {address} of {name} does not answer": "{name} 的网关 {address} 无响应",
  "nothing that is asked {>way} answers ({servers})": "{way}时没有任何应答（{servers}）",
  "no resolver answers {>way} ({servers})": "{way}时没有 DNS 服务器应答（{servers}）",
  "another program's policy rules come before egressd's and send clients elsewhere (ip rule show)":
    "其他程序的策略路由规则排在 egressd 之前，把客户端送往别处（ip rule show）",
  "the connection table is full, and new connections are dropped: raise net.netfilter.nf_conntrack_max, which is {n}":
    "连接跟踪表已满，新连接被丢弃：请增大 net.netfilter.nf_conntrack_max（当前为 {n}）",
  "no LAN was found, because no interface has a private address; no client is served: set [lan] interfaces in the configuration":
    "没有找到局域网：没有接口使用私有地址，无法为任何客户端服务。请在配置中设置 [lan] interfaces",
  "no WAN was found, since no interface has a default route: set [wan] interfaces in the configuration":
    "没有找到 WAN：没有接口带默认路由。请在配置中设置 [wan] interfaces",
  "an operator has stopped the device": "设备已被管理员停止",
  "none of its nodes has a way out": "没有一个节点可以出网",
  "it is being started": "正在启动",
  "its node fails: {>reason}": "节点故障：{reason}",
  "all of its nodes fail: {>reason}": "所有节点均故障：{reason}",
  "it does not answer": "无响应",
  "the node does not answer": "节点无响应",
  "the node's name does not exist": "节点域名不存在",
  "the node's name has no address of the asked kind (ip-version)":
    "节点域名没有所查询类型的地址(见 ip-version)",
  "the node's name was not resolved: {>reason}": "无法解析节点域名：{reason}",
  "the node does not reach the site: {>reply}": "节点无法到达目标网站：{reply}",
  "it cannot connect": "无法连接",
  "it does not allow the connection": "不允许此连接",
  "the network is unreachable": "网络不可达",
  "the host is unreachable": "主机不可达",
  "timed out": "超时",
  "timed out after {n} ms, {>stage}": "{n} 毫秒后超时：{stage}",
  "connecting through the node": "正在通过节点连接",
  "waiting for an answer through the node": "正在等待节点传回应答",
  "it does not carry TCP": "不支持 TCP",
  "it does not take such an address": "不支持此类地址",
  "wrong user name or password": "用户名或密码错误",
  "wrong password": "密码错误",
  "the node does not speak SOCKS5": "节点不是 SOCKS5 服务器",
  "the node answered with HTTP {status}": "节点返回 HTTP {status}",
  "TLS failure: {words}": "TLS 失败：{words}",
  "connection refused": "连接被拒绝",
  "the node closed the connection without an answer: a wrong password or key, or it does not reach the site":
    "节点未应答即关闭了连接：密码或密钥错误，或无法到达目标网站",
  "the node closed the connection": "节点关闭了连接",
  "the node is unreachable": "节点不可达",
  "the node's egress is blocked": "节点的出口被阻断",
  "the line {name} is offline: {>reason}": "线路 {name} 离线：{reason}",
  "the line {name} is disabled": "线路 {name} 已停用",
  "there is no interface {name}": "接口 {name} 不存在",
  "the interface {name} is down": "接口 {name} 未连接",
  "the interface {name} has no address": "接口 {name} 没有地址",
  "there is no node {name}, which {other} dials through": "{other} 的中转节点 {name} 不存在",
  "the relays lead in a circle: {name} comes twice": "中转形成循环：{name} 出现两次",
  "its target is REJECT": "目标是 REJECT",
  "its node does not carry UDP: it is refused at once, so that clients take TCP":
    "节点不支持 UDP：立即拒绝，使客户端改用 TCP",
  "engine worker {n}: {>reason}": "引擎进程 {n}：{reason}",
  "it does not start: {words}": "无法启动：{words}",
  "the node {name} does not work, as {>reason}": "节点 {name} 不可用，原因：{reason}",
  "the node {name} does not work: {>fault}": "节点 {name} 不可用：{fault}",
  "{>who} blocked, as {>reason}": "{who}被阻断，原因：{reason}",
  "{n} rule is": "{n} 条规则",
  "{n} rules are": "{n} 条规则",
  "clients without a rule are": "没有规则的客户端",
  "the whitelist's destinations are": "白名单目标",
  "{>who} not work, as {>reason}": "{who}不可用，原因：{reason}",
  "{n} node does": "{n} 个节点",
  "{n} nodes do": "{n} 个节点",
  "{n} proxy service does": "{n} 个代理服务",
  "{n} proxy services do": "{n} 个代理服务",
  "{>who} inactive, as domain recognition is switched off": "{who}不生效：域名识别已关闭",
  "{n} domain entry is": "{n} 个域名",
  "{n} domain entries are": "{n} 个域名",
  "{n} node(s): {>loss}": "{n} 个节点：{loss}",
  "ws-opts.max-early-data has no effect, as the engine of this Python loses early data with VMess":
    "ws-opts.max-early-data 不起作用：此 Python 版本的引擎在 VMess 下会丢失早期数据",
  "the same holds for {n} more lines": "另有 {n} 行也是如此",
  "there are notes on {n} more lines": "另有 {n} 行也有说明",
  "in line {n} of what it encodes: {>why}": "编码内容的第 {n} 行：{why}",
  '"{key}" has no effect here': '"{key}" 在此不起作用',
  '"{key}" is taken as {word}': '"{key}" 按 {word} 处理',
  "a comma in the name became a blank": "名称中的逗号已替换为空格",
  "what cannot be seen was left out of the name": "名称中不可见的字符已去除",
  "the name was cut to {n} characters": "名称已截短为 {n} 个字符",
  "an earlier row has the name: this node is {name}": "名称与前面的行重复，此节点命名为 {name}",
  "these fields of config_json were kept and have no effect: {fields}":
    "config_json 的以下字段已保留，但不起作用：{fields}",
  "another program's firewall drops what its rules do not let through, and none of them names {lans}: clients may be blocked ({program}, table {table})":
    "其他程序的防火墙会丢弃其规则未放行的流量，而没有一条规则提到 {lans}：客户端可能被阻断（{program}，表 {table}）",
  "another program marks connections, or packets behind egressd, which goes by marks of its own: clients may be blocked (nftables, table {table})":
    "其他程序为连接或 egressd 之后的数据包设置了标记，而 egressd 依赖自己的标记：客户端可能被阻断（nftables，表 {table}）",
  "traffic by {interface} takes more of the processor, since another program's rules there are to see every packet (list them: {commands})":
    "经由 {interface} 的流量占用更多处理器，因为其他程序在该接口上的规则需要看到每个数据包（查看：{commands}）",
  "another program's filters may take what comes in by {interface} past clients' upload limits (list them: tc filter show dev {other} ingress)":
    "其他程序的过滤器可能使 {interface} 的入站流量绕过客户端的上传限速（查看：tc filter show dev {other} ingress）",
  "another program's filters for what goes out by {interface} do not apply to clients with a download limit (list them: tc filter show dev {other} egress)":
    "其他程序对 {interface} 出站流量的过滤器对有下载限速的客户端不起作用（查看：tc filter show dev {other} egress）",
  "another program's flowtable {flowtable} takes connections past egressd's rules: a client that moves may go on by its former way for some seconds (list it: nft list flowtable {other})":
    "其他程序的 flowtable {flowtable} 使连接绕过 egressd 的规则：客户端更换出口后，可能仍会沿原路径通信数秒（查看：nft list flowtable {other}）",
  "the nftables library was upgraded, and netd goes on with the version before it: to change over without cutting anything, run systemctl reload egressd-netd":
    "nftables 库已升级，而 netd 仍在使用之前的版本：运行 systemctl reload egressd-netd 即可切换，不会中断任何连接",
  "policy rules of other programs come before egressd's, and clients may be blocked: give them a priority above {n} ({command}; priorities {list})":
    "其他程序的策略路由规则排在 egressd 之前，客户端可能被阻断：请为其设置大于 {n} 的优先级（{command}；优先级 {list}）",
  "{name} has the network {network}, which overlaps that of {lan}: what is for the one goes to the other, so clients may be blocked; give one of them another network":
    "{name} 的网段 {network} 与 {lan} 的网段重叠：流量会走错，客户端可能被阻断；请为其中之一更换网段",
  "the IPv6 router {router} of {name} is not listened to, since that is LAN and WAN at once and a client could pose as it: if it is yours, set [wan] gateways6 = {setting} in the configuration":
    "{name} 同时是 LAN 和 WAN，客户端可能冒充路由器，因此不采信其上的 IPv6 路由器 {router}：如确属您的路由器，请在配置中设置 [wan] gateways6 = {setting}",
  "{router} poses as an IPv6 router behind {name}: this machine does not listen to it, but what clients send by it goes past their rules":
    "{name} 后的 {router} 冒充 IPv6 路由器：本机不采信，但客户端经它发送的流量不受其规则约束",
  "another program routes multicast to {lans}, and it is dropped: to let it in, set [lan] multicast = true in the configuration":
    "其他程序将组播路由到 {lans}，但已被丢弃：如需放行，请在配置中设置 [lan] multicast = true",
  "UDP through nodes to outside ports on which this machine has servers of its own may get no answers ({ports}), since the kernel does not let the engine answer from another port: {>reason}":
    "经节点访问外部的 UDP 端口时，若本机自身的服务占用同一端口（{ports}），可能收不到应答，因为内核不允许引擎从其他端口应答：{reason}",
  "{n} connections are tracked and {limit} is the limit: new ones are about to be dropped (net.netfilter.nf_conntrack_max)":
    "已跟踪 {n} 个连接，上限为 {limit}：新连接即将被丢弃（net.netfilter.nf_conntrack_max）",
  "the proxy service {name} does not run: {>reason}": "代理服务 {name} 未运行：{reason}",
  "local resolver {server} is neither on this machine nor in a LAN or local network: it is not asked":
    "本地 DNS 服务器 {server} 不在本机、LAN 或本地网络中：不会查询它",
  "resolver {server} does not answer {>way}: {other} is asked in its place":
    "{way}时 DNS 服务器 {server} 无响应，已改用 {other}",

  "all of the {n} files that an engine worker may have open are in use: no new connection gets through it":
    "引擎进程可打开的 {n} 个文件已全部占用：无法建立新连接",
  "{>who}: the bound of {n} connections through nodes is reached: further ones are refused":
    "{who}：经节点的连接已达上限 {n} 个，新连接会被拒绝",
  "the bound of {n} connections through nodes is reached: further ones are refused":
    "经节点的连接已达上限 {n} 个，新连接会被拒绝",
  "{>who}: the bound of {n} UDP sessions through nodes is reached: further ones are refused":
    "{who}：经节点的 UDP 会话已达上限 {n} 个，新会话会被拒绝",
  "the bound of {n} UDP sessions through nodes is reached: further ones are refused":
    "经节点的 UDP 会话已达上限 {n} 个，新会话会被拒绝",
  "{>who}: the bound of {n} connections through nodes for all addresses of a network without a rule of their own is reached: further ones are refused":
    "{who}：同一网段中没有自身规则的地址，经节点的连接合计已达上限 {n} 个，新连接会被拒绝",
  "the bound of {n} connections through nodes for all addresses of a network without a rule of their own is reached: further ones are refused":
    "同一网段中没有自身规则的地址，经节点的连接合计已达上限 {n} 个，新连接会被拒绝",
  "{>who}: the bound of {n} UDP sessions through nodes for all addresses of a network without a rule of their own is reached: further ones are refused":
    "{who}：同一网段中没有自身规则的地址，经节点的 UDP 会话合计已达上限 {n} 个，新会话会被拒绝",
  "the bound of {n} UDP sessions through nodes for all addresses of a network without a rule of their own is reached: further ones are refused":
    "同一网段中没有自身规则的地址，经节点的 UDP 会话合计已达上限 {n} 个，新会话会被拒绝",
  "{>who}: the bound of {n} connections to resolvers is reached: further ones are refused":
    "{who}：到 DNS 服务器的连接已达上限 {n} 个，新连接会被拒绝",
  "the bound of {n} connections to resolvers is reached: further ones are refused":
    "到 DNS 服务器的连接已达上限 {n} 个，新连接会被拒绝",
  "{>who}: more than {n} names a second are asked for: the rest gets no answer":
    "{who}：每秒查询的域名超过 {n} 个，超出的部分得不到应答",
  "more than {n} names a second are asked for: the rest gets no answer":
    "每秒查询的域名超过 {n} 个，超出的部分得不到应答",
  "{>who}: connections to the proxy service {service} do not sign in: further ones are refused":
    "{who}：到代理服务 {service} 的连接没有登录，新连接会被拒绝",
  "{>who}: too many wrong passwords for proxy services: it has to wait for a minute":
    "{who}：代理服务密码错误次数过多，须等待一分钟",
  "{>who}: more than {n} new connections a second to the API: the rest has to wait":
    "{who}：到 API 的新连接每秒超过 {n} 个，其余须等待",
  "{>who}: the bound of {n} connections to proxy services is reached: further ones are refused":
    "{who}：到代理服务的连接已达上限 {n} 个，新连接会被拒绝",
  "many callers of the proxy service {service} do not sign in: from outside, who has not signed in within ten minutes is refused":
    "代理服务 {service} 有许多连接没有登录：十分钟内未登录过的外部地址会被拒绝",
  "the bound of {n} connections to proxy services from outside is reached: further ones are refused":
    "来自外部的代理服务连接已达上限 {n} 个，新连接会被拒绝",

  "{names} and {n} other(s)": "{names} 等另外 {n} 个",

  // Why a client's traffic goes where it goes.
  "the device is stopped: every client is blocked":
    "设备已停止：无论如何，所有客户端都被阻断",
  "the device is opened: no rule applies, every client goes out directly":
    "设备已放行：规则不生效，所有客户端直接出网",
  "no enabled rule covers {client}: the setting unmanaged applies, {target}":
    "没有启用的规则包含 {client}：按“没有规则的客户端”处理，{target}",
  "rule {rule} covers {client}, and is narrower than rule {others}":
    "规则 {rule} 包含 {client}，且范围小于规则 {others}",
  "rule {rule} covers {client}": "规则 {rule} 包含 {client}",
  "rule {rule} is disabled, and so passed over": "规则 {rule} 已停用，因此跳过",
  "{destination} is on the whitelist ({entry}): it goes to {node}":
    "{destination} 在白名单中（{entry}）：送往 {node}",
  "the whitelist's {entry} does not apply: {>why}": "白名单的 {entry} 不适用：{why}",
  "it is for clients with a rule": "只对有规则的客户端生效",
  "DNS goes the client's own way": "DNS 查询走客户端自己的出口",
  "{destination}, {protocol} port {port}, is not on the whitelist":
    "{destination}（{protocol} 端口 {port}）不在白名单中",
  "listed addresses count too, should the name stand for one":
    "如果域名解析到白名单中的地址，也按白名单处理",
  "names of {domain} are asked locally, whatever the target":
    "{domain} 的域名在本地查询，与目标无关",
  "the target is {target}": "目标是 {target}",
  "it is blocked: {>reason}": "被阻断：{reason}",
  "it leaves by the device's own route": "按设备自身的路由出去",
  "it leaves by {egress}": "从 {egress} 出去",
  "it may be blocked: {>reason}": "可能被阻断：{reason}",
  directly: "直接查询",
  "by {egress}": "经 {egress} 查询",
  "through the node": "经节点查询",
  locally: "在本地查询",
  "what the line's peer hands out": "线路对端分配的服务器",

  // What the device refuses.
  "line {n}: {>why}": "第 {n} 行：{why}",
  "log in first": "请先登录",
  "there is no such session": "该会话已不存在",
  "all {quota} proxy services that are allowed exist already": "已达到代理服务上限 {quota}",
  "{field} must not look like another's: there is a {>kind} {name} already":
    "{field} 与已有的{kind} {name} 看起来相同",
  "{field} must not look like DIRECT or REJECT nor begin like Group_ or Interface:":
    "{field} 不能看起来像 DIRECT 或 REJECT，也不能以类似 Group_ 或 Interface: 的字样开头",
  "{field} must be in Unicode's normal form NFC": "{field} 必须采用 Unicode 规范形式 NFC",
  "{field} must not begin with a combining mark": "{field} 不能以组合符号开头",
  "{field} must not contain U+{point}, which cannot be seen": "{field} 不能包含不可见字符 U+{point}",
  "{field} must not be this device itself": "{field} 不能是本设备自身",
  "{field} must be on the internet unless the import takes private ones: it is {>reason}":
    "{field} 必须位于互联网上（除非导入时允许私有服务器）：{reason}",
  "a private address": "私有地址",
  "a link-local address": "链路本地地址",
  "a multicast address": "组播地址",
  "a reserved address": "保留地址",
  "a name of a private network": "私有网络的名称",
  "in a LAN": "在局域网内",
  "node {n}: {>problem}": "节点 {n}：{problem}",
  "rule {n}: {>problem}": "规则 {n}：{problem}",
  "VPN line {n}: {>problem}": "VPN 线路 {n}：{problem}",
  "proxy service {n}: {>problem}": "代理服务 {n}：{problem}",
  "{field} must be free: {>user} listens on {port}": "{field} {port} 已被占用：{user}",
  nodes: "节点",
  rules: "规则",
  "VPN lines": "VPN 线路",
  "proxy services": "代理服务",
  "there is a {>kind} {name} already": "{kind} {name} 已存在",
  "there is no {>kind} {name}": "{kind} {name} 不存在",
  l2tp: "L2TP",
  pptp: "PPTP",
  rule: "规则",
  node: "节点",
  group: "节点组",
  interface: "接口",
  line: "线路",
  "proxy service": "代理服务",
  "{field} must not be empty when a password is given": "填写密码时 {field} 不能为空",
  "{field} must not be empty": "{field} 不能为空",
  "{field} must be {>takes}": "{field} 应为：{takes}",
  "{field} must begin with {prefix}, go on with letters, digits or _ . @ - and have at most {n} characters":
    "{field} 必须以 {prefix} 开头，其后为字母、数字或 _ . @ -，最多 {n} 个字符",
  "{field} must not be lo, by which this device is reached and nothing else":
    "{field} 不能是 lo：它只通向本机",
  "{field} must have at most {n} bytes": "{field} 最多 {n} 个字节",
  "{field} must have at most {n} characters": "{field} 最多 {n} 个字符",
  "{field} must have {least} to {most} characters": "{field} 必须有 {least} 到 {most} 个字符",
  "{field} must not contain control characters": "{field} 不能包含控制字符",
  "{field} must not contain a comma": "{field} 不能包含逗号",
  "{field} must not begin or end with white space": "{field} 首尾不能有空格",
  "an IPv4 address or a CIDR without host bits": "IPv4 地址或没有主机位的 CIDR",
  "an IPv4 address or a host name": "IPv4 地址或主机名",
  "an IPv4 address": "IPv4 地址",
  "DIRECT, REJECT, a node's name, Group_<group name> or Interface:<interface name>":
    "DIRECT、REJECT、节点名称、Group_<节点组> 或 Interface:<接口>",
  "a whole number from {least} to {most}": "{least} 到 {most} 的整数",
  "an interface name of 1 to {n} characters: letters, digits, and after the first also _ . @ -":
    "1 到 {n} 个字符的接口名：字母、数字，首字符之后还可以有 _ . @ -",
  "a bare interface name, without {prefix}": "接口名，不带 {prefix}",
  "one of {choices}": "以下之一：{choices}",

  // What was done to several.
  "{>things} imported, {skipped} skipped": "已导入 {things}，跳过 {skipped} 行",
  "{>things} updated": "已修改 {things}",
  "{>things} enabled": "已启用 {things}",
  "{>things} disabled": "已停用 {things}",
  "{>things} deleted": "已删除 {things}",
};
