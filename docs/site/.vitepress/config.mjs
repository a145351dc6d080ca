// The documentation site. `make site` copies this folder and docs/ to .build/site-work and builds the site there, so that docs/ has
// no node_modules. docs/README.md is the table of contents: the sidebar has the same sections, in the same order.
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const docs = fileURLToPath(new URL('../pages', import.meta.url))
const repository = 'https://github.com/rehome-dev/rehome'
const read = (name) => fs.readFileSync(path.join(docs, name), 'utf8')

// SITE_VERSION builds the site of a release for its own folder, such as /v0.2/.
const version = process.env.SITE_VERSION ?? ''
const base = version ? `/${version}/` : '/'
const versions = JSON.parse(read('../versions.json'))

// address is the address of a link on a page of docs/: files that are no pages are on GitHub.
function address(page, link) {
  if (/^([a-z]+:|#|\/)/.test(link)) return link
  const [file, anchor] = link.split('#')
  const target = path.posix.join(path.posix.dirname(page), file)
  const hash = anchor ? `#${anchor}` : ''
  if (target === 'README.md') return `/${hash}`
  if (target === '../README.md') return `/first-steps${hash}`
  if (target.endsWith('.md') && !target.startsWith('..')) return '/' + target.replace(/\.md$/, '') + hash
  const kind = path.extname(target) ? 'blob' : 'tree'
  return `${repository}/${kind}/main/${path.posix.join('docs', target)}${hash}`
}

const decisions = fs.readdirSync(path.join(docs, 'decisions')).filter((name) => !name.startsWith('0000')).sort().map((name) => ({
  text: read(`decisions/${name}`).match(/^# (.*)$/m)[1], link: `/decisions/${name.replace(/\.md$/, '')}`,
}))

// sidebar reads the tables of docs/README.md.
function sidebar() {
  return read('README.md').split(/^## /m).slice(1).map((section) => ({
    text: section.split('\n')[0],
    collapsed: false,
    items: [...section.matchAll(/^\| \[([^\]]+)\]\(([^)]+)\) \|/gm)].map(([, text, file]) => {
      const item = { text, link: address('README.md', file) }
      return file === 'decisions' ? { text, link: decisions[0].link, collapsed: true, items: decisions } : item
    }),
  }))
}

const contents = sidebar()

// pictures.md#gh-dark-mode-only shows a picture on GitHub in one theme only; the classes do so here.
function themedPictures(md) {
  const image = md.renderer.rules.image
  md.renderer.rules.image = (tokens, i, options, env, self) => {
    const source = tokens[i].attrGet('src')
    const only = source.match(/#gh-(light|dark)-mode-only$/)
    if (only) {
      tokens[i].attrSet('src', source.slice(0, only.index))
      tokens[i].attrJoin('class', `only-${only[1]}`)
    }
    tokens[i].attrSet('loading', 'lazy')
    return image(tokens, i, options, env, self)
  }
}

// Indented blocks become fenced blocks: commands with colors, all with a button to copy them.
function indentedBlocks(md) {
  md.core.ruler.push('indented-blocks', (state) => {
    for (const token of state.tokens) {
      if (token.type !== 'code_block') continue
      const command = /^(\w+=\S+ )*(bin\/rehome|rehome|kubectl|make|helm|docker|curl|nats|source|ln|export) /m.test(token.content)
      Object.assign(token, { type: 'fence', tag: 'code', info: command ? 'sh' : 'txt', markup: '```' })
    }
  })
}

function links(md) {
  md.core.ruler.push('addresses', (state) => {
    const page = path.posix.relative(docs, state.env.path ?? path.join(docs, 'README.md'))
    for (const block of state.tokens) {
      for (const token of block.children ?? []) {
        if (token.type === 'link_open') token.attrSet('href', address(page, token.attrGet('href')))
      }
    }
  })
}

// slug is the anchor of a heading on GitHub, so that links work there and here.
const slug = (text) => text.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')

export default defineConfig({
  title: 'Rehome',
  description: 'An event-driven descheduler for Kubernetes',
  lang: 'en',
  base,
  srcDir: docs,
  srcExclude: ['README.md', 'decisions/0000-template.md'],
  outDir: path.join(docs, '../../site', version),
  cleanUrls: false,
  metaChunk: true,
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: `${base}logo.svg` }]],
  markdown: {
    anchor: { slugify: slug },
    config(md) {
      md.use(themedPictures)
      md.use(links)
      md.use(indentedBlocks)
    },
  },
  vite: { publicDir: path.join(docs, '../public'), build: { chunkSizeWarningLimit: 4096 } },
  themeConfig: {
    logo: '/logo.svg',
    nav: [
      ...contents.map(({ text, items }) => ({ text, link: items[0].link, activeMatch: `^(${items.map((i) => i.link).filter((l) => l.startsWith('/')).join('|')})(\\.html)?$` })),
      {
        text: version || versions[0].text,
        items: versions.map(({ text, path: link }) => ({ text, link, target: '_self' })),
      },
    ],
    sidebar: contents,
    outline: { level: [2, 3] },
    search: { provider: 'local', options: { detailedView: false, miniSearch: { searchOptions: { fuzzy: 0.1, prefix: true, boost: { title: 6, titles: 2, text: 1 } } } } },
    socialLinks: [{ icon: 'github', link: repository }],
    // VitePress runs this function in the browser, so it has no access to other names of this file.
    editLink: {
      pattern: ({ filePath }) => `https://github.com/rehome-dev/rehome/edit/main/${filePath === 'first-steps.md' ? 'README.md' : `docs/${filePath}`}`,
      text: 'Edit this page',
    },
    footer: { message: 'Apache License 2.0', copyright: 'The Rehome authors' },
  },
})
